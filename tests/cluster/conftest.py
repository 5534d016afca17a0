"""A private Slurm, a private Grid Engine and nodes of namespaces, each made once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import namespace_nodes
import private_grid_engine
import private_slurm
import pytest
from cluster_site import NAMES, Cluster, Site, find_millrace, get_marks
from hdfs_site import Hdfs, serve_hdfs, write_settings


@pytest.fixture
def site() -> Iterator[Site]:
    # Where all nodes see it.
    with tempfile.TemporaryDirectory(prefix="mr-site-") as folder:
        made = Site(Path(folder))
        yield made
    made.reached.unlink(missing_ok=True)  # a tool may have written it in the last moment
    shutil.rmtree(get_marks(made), ignore_errors=True)


@pytest.fixture(scope="session")
def millrace() -> str:
    """The command, of an installation that has MPI."""
    return find_millrace()


@pytest.fixture(scope="session")
def slurm() -> Iterator[private_slurm.Slurm]:
    if reason := private_slurm.reason_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="mr-slurm-") as folder, private_slurm.Slurm(Path(folder)) as made:
        yield made


@pytest.fixture(scope="session")
def grid_engine() -> Iterator[private_grid_engine.GridEngine]:
    if reason := private_grid_engine.reason_not() or namespace_nodes.reason_not():
        pytest.skip(reason)
    hosts = ("head", "node1", "node2")
    number = os.getpid() % 200 + 40
    with (
        tempfile.TemporaryDirectory(prefix="mr-engine-") as root,  # written by daemons until the nodes are off
        tempfile.TemporaryDirectory(prefix="mr-") as folder,
        namespace_nodes.Nodes(Path(folder), hosts, number) as made,
        private_grid_engine.GridEngine(made, Path(root), hosts) as engine,
    ):
        yield engine


@pytest.fixture(scope="session")
def all_nodes() -> Iterator[namespace_nodes.Nodes]:
    if reason := namespace_nodes.reason_not():
        pytest.skip(reason)
    number = os.getpid() % 200 + 20
    with (
        tempfile.TemporaryDirectory(prefix="mr-") as folder,
        namespace_nodes.Nodes(Path(folder), NAMES, number) as made,
    ):
        yield made


@pytest.fixture
def cluster(all_nodes: namespace_nodes.Nodes, millrace: str, site: Site) -> Iterator[Cluster]:
    yield Cluster(all_nodes, millrace, site)

    def restart(name: str) -> None:
        all_nodes.kill(name)  # whatever is in it
        all_nodes.start(name)

    with ThreadPoolExecutor() as pool:
        list(pool.map(restart, NAMES))


@pytest.fixture(scope="session")
def hdfs_of_nodes(all_nodes: namespace_nodes.Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with serve_hdfs(all_nodes, tmp_path_factory.mktemp("hdfs")) as made:
        yield made


@pytest.fixture
def hdfs(hdfs_of_nodes: Hdfs, cluster: Cluster) -> Hdfs:
    """An HDFS of this worker's nodes, whose settings are in the folder ``conf`` of the site."""
    write_settings(hdfs_of_nodes, cluster.site.folder / "conf")
    return hdfs_of_nodes
