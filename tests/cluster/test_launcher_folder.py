"""What the MPI launcher keeps on a node lies under a name that nobody can know, and goes with the start that it is of."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import harness
import process_lookup
from cluster_site import Cluster
from test_lost import ends_well, under_way

from millrace.host import work_places


def folder_of(cluster: Cluster) -> Path:
    """Of the start that runs, as its coordinator knows it."""
    coordinator = cluster.find_one("node1", "millrace run")
    return Path(os.fsdecode(process_lookup.environment(coordinator)[work_places.LAUNCHER_VARIABLE.encode()]))


def test_each_start_has_a_folder_of_its_own_and_none_is_left(cluster: Cluster) -> None:
    with cluster.site.held():
        process = cluster.start()
        under_way(cluster)
        first = folder_of(cluster)
        assert first.stat().st_mode & 0o777 == 0o700
        assert len(list(first.glob("prted.*"))) == 3, "no daemon has the folder of another"
        os.kill(cluster.find_one("node3", "prted"), signal.SIGKILL)
        assert harness.wait_until(lambda: "starting again" in cluster.said and cluster.find("node1", "millrace run"))
        second = folder_of(cluster)
    assert second != first and second.parent == first.parent
    first.mkdir(mode=0o777)  # as a stranger does who has seen the name
    first.chmod(0o777)
    ends_well(cluster, process)
    assert not second.exists() and not list(first.iterdir())
    first.rmdir()
