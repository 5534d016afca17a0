"""The key of a start goes from the supervisor to the ranks, and to nobody else."""

from __future__ import annotations

import process_lookup
from cluster_site import NAMES, Cluster
from test_lost import ends_well, under_way

VARIABLE = b"MILLRACE_KEY"


def test_start_key_is_in_no_arguments_or_tool_environment(cluster: Cluster) -> None:
    """The ranks alone have it, and all have the same one."""
    with cluster.site.held():
        process = cluster.start()
        under_way(cluster)
        keys, n_tools = set(), 0
        for name in NAMES:
            for pid in cluster.nodes.inhabitants(name):
                key, words = process_lookup.environment(pid).get(VARIABLE), process_lookup.arguments(pid)
                if words.startswith("/bin/sh ") and "tool in.fa" in words and "millrace run" not in words:
                    n_tools += 1
                    assert key is None, words
                elif key is not None:
                    keys.add(key.decode())
        assert len(keys) == 1 and n_tools, "the ranks have one, and tools run"
        (key,) = keys
        assert len(key) == 64
        for name in NAMES:
            for pid in cluster.nodes.inhabitants(name):
                assert key not in process_lookup.arguments(pid)
    ends_well(cluster, process)
