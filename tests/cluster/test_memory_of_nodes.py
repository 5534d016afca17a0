"""Too little memory on several nodes: each takes fewer slots, nothing is put aside, and the bytes are the serial ones."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cgroups import HOLD, memory_group
from cluster_site import Cluster, Site
from private_slurm import Slurm, reason_not

#: Takes 220 MB.
HUNGRY = """#!{python} -SE
{hold}
import sys
held = hold(220, {folder!r})
with open(sys.argv[1]) as source, open(sys.argv[2], 'w') as out:
    for line in source:
        out.write(line.replace('>', '>seen ') if line.startswith('>') else line)
"""

#: Room for one of them, and what a process of MPI needs.
LIMIT_MB = 420


@pytest.fixture
def hungry() -> Iterator[Site]:
    with (
        tempfile.TemporaryDirectory(prefix="mr-site-") as folder,
        tempfile.TemporaryDirectory(prefix="mr-met-") as met,  # the files of the working directory are each tool's own
    ):
        site = Site(Path(folder), n=32)
        text = HUNGRY.format(python=sys.executable, hold=HOLD, folder=met)
        (site.folder / "tool").write_text(text)
        yield site


def came_through(site: Site, said: str, names: tuple[str, ...]) -> None:
    assert site.output.read_bytes() == site.expected, said
    assert "quarantined" not in said
    for name in names:
        assert re.search(
            rf"^\W*{name} \(rank \d\): memory ran out with . tools .* going on with [12] slot", said, re.M
        ), said


@pytest.mark.slow
def test_slurm_job_with_too_little_memory_uses_fewer_slots(hungry: Site, millrace: str) -> None:
    if reason := reason_not():
        pytest.skip(reason)
    with memory_group("probe", 64 << 20):
        pass  # or skips
    words = [millrace, "slurm", "-N", "2", "-t", "10:00", "--mem", f"{LIMIT_MB}M", *hungry.options("--slots", "3")]
    with tempfile.TemporaryDirectory(prefix="mr-slurm-") as folder, Slurm(Path(folder), 2, with_memory=True) as slurm:
        done = subprocess.run(words, cwd=hungry.folder, env=slurm.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        job = done.stdout.split()[-1]
        ends = ("COMPLETED", "OUT_OF_MEMORY", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        slurm.wait(lambda: slurm.state(job) in ends, "end", 300)
    came_through(hungry, (hungry.folder / f"tool-{job}.log").read_text(errors="replace"), (socket.gethostname(),))


def test_nodes_with_too_little_memory_use_fewer_slots(hungry: Site, cluster: Cluster) -> None:
    hosts = ("node1", "node2")
    cluster.site = hungry
    with ExitStack() as stack:
        for name in hosts:
            group = stack.enter_context(memory_group(name, LIMIT_MB << 20))
            stack.callback(cluster.nodes.kill, name)
            for pid in cluster.nodes.pids(name):
                (group.folder / "cgroup.procs").write_text(str(pid))
        words = [cluster.millrace, "run", "--hosts", ",".join(hosts), *hungry.options("--slots", "3")]
        process = cluster.start_command(" ".join(words))
        assert process.wait(300) == 0, cluster.said
        came_through(hungry, cluster.said, hosts)
