"""``--hosts`` as it is meant: over ``ssh`` and real servers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import harness
import namespace_nodes
import pytest
import ssh_nodes
from cluster_site import NAMES, Cluster, Site
from process_lookup import arguments
from test_lost import ends_well, is_said, under_way
from tool_batches import cut


@pytest.fixture
def by_ssh(millrace: str, site: Site) -> Iterator[Cluster]:
    """Nodes of this test's own, with servers."""
    if reason := namespace_nodes.reason_not() or ssh_nodes.reason_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="mr-") as name:
        folder = Path(name)
        with (
            namespace_nodes.Nodes(folder / "nodes", NAMES, os.getpid() % 200 + 21) as made,
            ssh_nodes.ssh(made, folder),
        ):
            yield SshCluster(made, millrace, site)


class SshCluster(Cluster):
    """Reaches the nodes with the ``ssh`` that Millrace finds by itself."""

    def start_command(self, words: str, sleep: str = "0.1") -> subprocess.Popen[bytes]:
        command = f"cd {self.site.folder}; exec env SLEEP={sleep} {words}"
        with (self.site.folder / "said").open("wb") as said:
            return subprocess.Popen(self.nodes.command("head", command), stdin=subprocess.DEVNULL, stderr=said)

    def left_over(self) -> list[str]:
        """Processes other than nodes and servers."""
        return [each for each in super().left_over() if "sshd" not in each]


def test_a_run_over_ssh_survives_a_lost_node(by_ssh: Cluster) -> None:
    with by_ssh.site.held():
        process = by_ssh.start("--verify", "0.5")
        under_way(by_ssh)
        assert any("ssh" in arguments(pid) for pid in by_ssh.nodes.pids("head"))
        by_ssh.nodes.kill("node3")
        is_said(by_ssh, r"starting again on 2 nodes \(node3 not answering\)|node3\b.* is lost: .* go to others")
    ends_well(by_ssh, process)
    assert "slots: 6 in 3 processes on 3 nodes" in by_ssh.said


def test_a_killed_connection_is_a_lost_part(by_ssh: Cluster) -> None:
    with by_ssh.site.held():
        process = by_ssh.start()
        under_way(by_ssh)
        os.kill(by_ssh.find("node2", "sshd: ")[0], signal.SIGKILL)
    ends_well(by_ssh, process)


#: MMseqs2, whose searches of a database that Millrace has made wait while the file is there.
MMSEQS = """#!/bin/sh
case "$*" in
easy-search*/prepared/*) while [ -e "{hold}" ]; do : > "{hold}.reached"; sleep 0.05; done ;;
esac
exec {mmseqs} "$@"
"""


@pytest.mark.slow
def test_mmseqs_over_ssh_survives_a_lost_node(by_ssh: Cluster, data: Path) -> None:
    """Each node makes an index of the target for itself."""
    if not (mmseqs := shutil.which("mmseqs")):
        pytest.skip("no mmseqs")
    site = by_ssh.site
    proteins = cut((data / "proteins_db.faa").read_bytes(), "fasta")[:300]
    (site.folder / "target.faa").write_bytes(b"".join(proteins))
    queries = (b">record%d\n%b" % (k, each.partition(b"\n")[2]) for k, each in enumerate(proteins[: site.n]))
    (site.folder / "in.fa").write_bytes(b"".join(queries))
    (site.folder / "tool").write_text(MMSEQS.format(hold=site.hold, mmseqs=mmseqs))
    (site.folder / "tool").rename(site.folder / "mmseqs")
    line = "./mmseqs easy-search in.fa target.faa {} tmp -k 5 --alph-size aa:13,nucl:5 -e 1000 -v 1"
    subprocess.run([*line.format("serial").split(), "--threads", "1"], cwd=site.folder, check=True)
    site.hold.touch()
    run = f"{by_ssh.millrace} run --hosts node1,node2,node3 --slots 1 --batch 3 --progress none"
    process = by_ssh.start_command(f"{run} -- {line.format('out.fa')}")
    assert harness.wait_until(lambda: site.under_way or process.poll() is not None) and process.poll() is None, (
        by_ssh.said
    )
    by_ssh.nodes.kill("node3")
    is_said(by_ssh, r"starting again on 2 nodes \(node3 not answering\)|node3\b.* is lost: .* go to others")
    site.hold.unlink()
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, by_ssh.said
    assert site.output.read_bytes() == (site.folder / "serial").read_bytes()
    assert harness.wait_until(lambda: not by_ssh.left_over())
