"""A view that dies on one of several nodes: what fails there waits for it, and no record is blamed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest
import web_server
from cluster_site import Cluster, get_marks
from test_lost import is_said
from test_ssh import by_ssh  # noqa: F401

AWAY = "nobody serves what was mounted there any more"

#: Where it runs.
NODES = ("node1", "node2")

#: The file behind the view is its third word. Its marks lie beside the working folder, in which what it writes is its own.
TOOL = """#!/bin/sh
: > {folder}/begun.$(hostname)
until [ -e {folder}/go ]; do sleep 0.05; done
cksum < "$3" > /dev/null || exit 7
sed 's/^>/>seen /' "$1" > "$2"
"""


def at(cluster: Cluster, name: str, words: str) -> int:
    return subprocess.run(cluster.nodes.command(name, words), stdin=subprocess.DEVNULL, capture_output=True).returncode


@contextmanager
def mounted(cluster: Cluster, name: str, url: str, point: Path) -> Iterator[None]:
    """A view on one node."""
    serve = f"exec {sys.executable} -m millrace data mount --foreground {url} {point} --to {point.parent}/cache-{name}"
    with subprocess.Popen(cluster.nodes.command(name, serve), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as view:
        try:
            assert harness.wait_until(lambda: not at(cluster, name, f"mountpoint -q {point}"), view), view.communicate()
            yield
        finally:
            at(cluster, name, f"umount -l {point}")
            view.kill()


def kill_view(cluster: Cluster, name: str) -> None:
    pids = cluster.find(name, "data mount")
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert harness.wait_until(lambda: not cluster.find(name, "data mount"))


@dataclass
class Views:
    """A run on two nodes, each of which reads a file in a view of its own."""

    cluster: Cluster
    url: str
    point: Path
    stack: ExitStack

    @property
    def words(self) -> str:
        options = "--slots 2 --batch 2 --verify 0 --retries 0 --stage off --progress none"
        return (
            f"{self.cluster.millrace} run --hosts {','.join(NODES)} {options} --shared {self.point}/set "
            f"--input in.fa --output out.fa -- ./tool in.fa out.fa {self.point}/set"
        )

    def mount(self, name: str) -> None:
        self.stack.enter_context(mounted(self.cluster, name, self.url, self.point))

    def start_and_lose(self, *names: str) -> subprocess.Popen[bytes]:
        """A run that waits for the views of these nodes, which died while tools were at work."""
        folder = get_marks(self.cluster.site)
        process = self.cluster.start_command(self.words)
        begun = [folder / f"begun.{name}" for name in NODES]
        assert harness.wait_until(lambda: all(each.exists() for each in begun), process), self.cluster.said
        for name in names:
            kill_view(self.cluster, name)
        (folder / "go").touch()
        for name in names:
            is_said(self.cluster, f"{name}.*: {self.point}: {AWAY}; waiting 60 s at most")
        return process

    def ends_well(self, process: subprocess.Popen[bytes]) -> None:
        assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, self.cluster.said
        assert self.cluster.site.output.read_bytes() == self.cluster.site.expected
        assert "quarantined" not in self.cluster.said


@contextmanager
def views_of(cluster: Cluster) -> Iterator[Views]:
    pytest.importorskip("mfusepy", exc_type=Exception)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs /dev/fuse")
    folder = cluster.site.folder
    (folder / "tool").write_text(TOOL.format(folder=get_marks(cluster.site)))
    for name in ("view", *(f"cache-{name}" for name in ("head", *NODES))):
        (folder / name).mkdir()
    with web_server.serve(host=cluster.nodes.gateway) as web, ExitStack() as stack:
        url = web.put("db/set", b"some bytes").rpartition("/")[0]
        found = Views(cluster, url, folder / "view", stack)
        for name in ("head", *NODES):
            found.mount(name)
        yield found


@pytest.fixture
def views(cluster: Cluster) -> Iterator[Views]:
    with views_of(cluster) as found:
        yield found


def test_tasks_that_wait_on_one_node_run_on_another(views: Views) -> None:
    views.ends_well(views.start_and_lose("node2"))


def go_on_in_new_views(views: Views) -> None:
    process = views.start_and_lose(*NODES)
    assert process.poll() is None
    for name in NODES:
        at(views.cluster, name, f"umount -l {views.point}")
        views.mount(name)
    views.ends_well(process)
    assert f"{views.point}: is served again" in views.cluster.said


@pytest.mark.slow
def test_run_resumes_in_new_views_when_all_nodes_wait(views: Views) -> None:
    go_on_in_new_views(views)


@pytest.mark.slow
def test_the_same_over_ssh(by_ssh: Cluster) -> None:  # noqa: F811
    with views_of(by_ssh) as found:
        go_on_in_new_views(found)


@pytest.mark.slow  # who waits in vain does so for a minute
def test_lost_view_on_all_nodes_is_named_and_run_resumes(views: Views) -> None:
    process = views.start_and_lose(*NODES)
    assert process.wait(timeout=harness.LONGEST_SECONDS) == 1, views.cluster.said
    assert f"{views.point}: {AWAY}\n" in views.cluster.said
    assert f"umount {views.point}, mount it anew" in views.cluster.said
    for name in NODES:
        at(views.cluster, name, f"umount -l {views.point}")
        views.mount(name)
    views.ends_well(views.cluster.start_command(views.words))
