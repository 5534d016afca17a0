"""Nodes that read at the same time tell what a place costs for so many, over real ``ssh`` and a link that binds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nodes
import pytest
import ssh_nodes
import web_server

NAMES = ("head", "node1", "node2")


@pytest.fixture
def reached(tmp_path: Path) -> Iterator[tuple[nodes.Nodes, Path]]:
    """Nodes with servers of ``ssh``, and the home of their user."""
    pytest.importorskip("requests")
    if reason := nodes.reason_not() or ssh_nodes.reason_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="mr-") as name:
        folder = Path(name)
        with nodes.Nodes(folder / "nodes", NAMES, os.getpid() % 200 + 23) as made, ssh_nodes.ssh(made, folder):
            yield made, folder / "home"


def probe(made: nodes.Nodes, cache: Path, words: str) -> subprocess.CompletedProcess[str]:
    line = f"XDG_CACHE_HOME={cache} MILLRACE_CONFIG= {sys.executable} -m millrace data probe {words}"
    return subprocess.run(made.command("head", line), capture_output=True, text=True, timeout=300, check=False)


def test_probe_of_hosts_measures_nodes_that_share_a_link(reached: tuple[nodes.Nodes, Path], tmp_path: Path) -> None:
    made, home = reached
    subprocess.run(
        ["tc", "qdisc", "add", "dev", made._bridge, "root", "tbf", "rate", "40mbit", "burst", "64kb", "latency", "200ms"], check=True
    )  # fmt: skip
    with web_server.serve(host=made.gateway) as web:
        url = web.put("nr.faa", os.urandom(4 << 20))
        ended = probe(made, tmp_path, f"--json --hosts head,node[1-2] {url}")
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
        ended = probe(made, tmp_path, f"--hosts node1,nowhere {url}")
        assert ended.returncode == 1 and "nowhere: no probe there: ssh: " in ended.stderr, ended.stderr
        ended = probe(made, tmp_path, f"--hosts node1 {web.url}/none")
        assert ended.returncode == 1 and f"node1: {web.url}/none: no such file" in ended.stderr, ended.stderr
