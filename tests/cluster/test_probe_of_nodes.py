"""Nodes that read at the same time tell what a place costs for so many, over real ``ssh`` and a link that binds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import namespace_nodes
import pytest
import ssh_nodes
import web_server

NAMES = ("head", "node1", "node2")


@pytest.fixture(scope="module")
def reached() -> Iterator[tuple[namespace_nodes.Nodes, Path]]:
    """Nodes with servers of ``ssh``, and the home of their user."""
    pytest.importorskip("requests")
    if reason := namespace_nodes.reason_not() or ssh_nodes.reason_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="mr-") as name:
        folder = Path(name)
        with (
            namespace_nodes.Nodes(folder / "nodes", NAMES, os.getpid() % 200 + 23) as made,
            ssh_nodes.ssh(made, folder),
        ):
            yield made, folder / "home"


def call(made: namespace_nodes.Nodes, node: str, cache: Path, words: str) -> subprocess.CompletedProcess[str]:
    line = f"XDG_CACHE_HOME={cache} MILLRACE_CONFIG= {sys.executable} -m millrace data {words}"
    return subprocess.run(made.command(node, line), capture_output=True, text=True, timeout=300, check=False)


def test_probe_of_hosts_measures_nodes_that_share_a_link(
    reached: tuple[namespace_nodes.Nodes, Path], tmp_path: Path
) -> None:
    made, home = reached
    subprocess.run(
        ["tc", "qdisc", "add", "dev", made._bridge, "root", "tbf", "rate", "40mbit", "burst", "64kb", "latency", "200ms"], check=True
    )  # fmt: skip
    with web_server.serve(host=made.gateway) as web:
        url = web.put("nr.faa", os.urandom(4 << 20))
        ended = call(made, "head", tmp_path, f"probe --json --hosts head,node[1-2] {url}")
        assert ended.returncode == 0, ended.stderr
        found = json.loads(ended.stdout)[0]
        seconds = {line["readers"]: line["seconds_per_byte"] for line in found["cost"]["lines"]}
        assert sorted(seconds) == [1, 2, 3]
        assert seconds[3] > 1.5 * seconds[1] and seconds[3] > 2 * 8 / 40e6, seconds
        tables = [
            *(home / ".cache" / "millrace" / f"costs-{name}.json" for name in NAMES),
            tmp_path / "millrace" / "costs-head.json",
        ]
        assert all(json.loads(table.read_text()) == {web.url: found} for table in tables)
        ended = call(made, "head", tmp_path, f"probe --hosts node1,nowhere {url}")
        assert ended.returncode == 1 and "nowhere: no probe there: ssh: " in ended.stderr, ended.stderr
        ended = call(made, "head", tmp_path, f"probe --hosts node1 {web.url}/none")
        assert ended.returncode == 1 and f"node1: {web.url}/none: no such file" in ended.stderr, ended.stderr


def test_copy_that_one_node_made_is_found_by_the_next(
    reached: tuple[namespace_nodes.Nodes, Path], tmp_path: Path
) -> None:
    """In a folder that both see; in a node's own memory it is that node's alone."""
    made, _ = reached
    (tmp_path / "scratch").mkdir()
    with web_server.serve(host=made.gateway) as web:
        shared, own = web.put("shared.faa", b"x" * 5000), web.put("own.faa", b"x" * 5000)
        copy = call(made, "node1", tmp_path, f"stage --to {tmp_path}/scratch {shared}").stdout.strip()
        assert copy.startswith(f"{tmp_path}/scratch/")
        assert call(made, "node1", tmp_path, f"stage --to ram {own}").stdout.startswith("/dev/shm/")
        for node, words, path in (("node1", own, "/dev/shm/"), ("node2", own, own), ("node2", shared, copy)):
            assert call(made, node, tmp_path, f"best-path {words}").stdout.startswith(path)
        assert web.n_downloads == 2
