"""Several nodes on a shared filesystem without ``flock``: runs work there, and two of one output exclude each other."""

from __future__ import annotations

import errno
import shlex
import subprocess
from pathlib import Path

import harness
import pytest
from cluster_site import NAMES, Cluster, Site
from flock_filesystem import told_flock
from private_slurm import Slurm

ANOTHER = r"another millrace (process "


@pytest.fixture
def without(site: Site, session_folder: Path) -> dict[str, str]:
    """What its processes and tools have in their environment, on all nodes."""
    tool = (site.folder / "tool").read_text()
    seen = '[ "$FLOCK_ANSWER" = "" ] && exit 7'  # what the head has alone shows nothing
    (site.folder / "tool").write_text(tool.replace("\n", f"\n{seen}\n", 1))
    return told_flock(session_folder, site.folder, errno.ENOSYS)


def under_way(site: Site) -> None:
    assert harness.wait_until(lambda: site.under_way)


def test_runs_on_named_hosts_exclude_each_other(cluster: Cluster, without: dict[str, str]) -> None:
    site = cluster.site
    words = ["env", *(f"{name}={value}" for name, value in without.items())]
    words += [cluster.millrace, "run", "--hosts", ",".join(NAMES[1:]), *site.options()]
    with site.held():
        first = cluster.start_command(shlex.join(words))
        under_way(site)
        said = site.folder / "said"
        kept = said.rename(site.folder / "said.first")
        second = cluster.start_command(shlex.join(words))
        assert second.wait(harness.LONGEST_SECONDS) == 2, cluster.said
        assert ANOTHER in cluster.said
        assert not site.output.exists() or site.expected.startswith(site.output.read_bytes())
    assert first.wait(harness.LONGEST_SECONDS) == 0, kept.read_text()
    assert site.output.read_bytes() == site.expected
    assert site.left_over() == []


@pytest.mark.slow
def test_jobs_of_slurm_exclude_each_other(slurm: Slurm, site: Site, millrace: str, without: dict[str, str]) -> None:
    environ = {**slurm.environ, **without, "SLEEP": "0.2"}

    def submit() -> str:
        words = [millrace, "slurm", "-N", "1", "-t", "10:00", *site.options()]
        done = subprocess.run(words, cwd=site.folder, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    def log(job: str) -> str:
        return (site.folder / f"tool-{job}.log").read_text(errors="replace")

    with site.held():
        first = submit()
        under_way(site)
        second = submit()
        slurm.wait(lambda: slurm.state(second) == "FAILED", "refusal")
        assert ANOTHER in log(second), log(second)
        assert not site.output.exists() or site.expected.startswith(site.output.read_bytes())
    slurm.wait(lambda: slurm.state(first) not in ("RUNNING", "COMPLETING"), "end")
    assert slurm.state(first) == "COMPLETED", log(first)
    assert site.output.read_bytes() == site.expected
    assert site.left_over() == []
