"""Nodes that a remote shell reaches, and other nodes do not, or not over the same family of addresses."""

from __future__ import annotations

import subprocess

import harness
from cluster_site import NAMES, Cluster
from mpi_jobs import find, with_limits

#: MPI never starts, which is noticed after half a minute in which all ranks are busy.
SHORT_START = "from millrace.launch import heartbeat\nheartbeat.MAX_MPI_START_SECONDS = 1.0\n"


def at(cluster: Cluster, node: str, line: str) -> None:
    """Run a line of shell at a node."""
    subprocess.run(cluster.nodes.command(node, line), check=True, capture_output=True)


def keep_apart(cluster: Cluster, node: str, *others: str) -> None:
    """Let nothing pass from ``node`` to the others, as a firewall does; its own connection to the head stays."""
    for other in others:
        address = f"10.78.{cluster.nodes.number}.{NAMES.index(other) + 1}"
        at(cluster, node, f"ip route add prohibit {address}/32")


def test_node_without_ipv6_joins_nodes_with_ipv6(cluster: Cluster) -> None:
    for number, node in enumerate(NAMES):
        if node != "node2":
            at(cluster, node, f"ip -6 addr add fd00:77::{number + 1}/64 dev eth0 nodad")
    assert cluster.start("--batch", "8").wait(harness.LONGEST_SECONDS) == 0, cluster.said
    assert "in 3 processes on 3 nodes" in cluster.said and "starting again" not in cluster.said
    assert "Traceback" not in cluster.said
    assert cluster.site.output.read_bytes() == cluster.site.expected


def test_unreachable_first_host_is_named_after_one_start(cluster: Cluster) -> None:
    """The run is not started again, as every start would fail alike."""
    keep_apart(cluster, "node1", "node2", "node3")
    cluster.millrace = with_limits(find("openmpi"), cluster.site.folder, SHORT_START).millrace
    assert cluster.start().wait(harness.LONGEST_SECONDS) == 2, cluster.said
    assert "node1: the other nodes do not reach it by TCP (node2, node3: " in cluster.said
    assert "firewall" in cluster.said
    assert "starting again" not in cluster.said and "Traceback" not in cluster.said
    assert cluster.left_over() == [] and cluster.site.left_over() == []


def test_node_that_does_not_reach_the_first_is_left_out(cluster: Cluster) -> None:
    keep_apart(cluster, "node3", "node1")
    assert cluster.start("--batch", "8").wait(harness.LONGEST_SECONDS) == 0, cluster.said
    assert "node3: left out, as node1 is not reached from there by TCP" in cluster.said
    assert "in 2 processes on 2 nodes" in cluster.said and "Traceback" not in cluster.said
    assert cluster.site.output.read_bytes() == cluster.site.expected
