"""Files behind URLs on several nodes: read once from the server, and seen by the tools of all nodes under one name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
import reading_tool
import storage_servers
import web_server
from cluster_site import NAMES, Cluster


@pytest.fixture
def server(cluster: Cluster) -> Iterator[web_server.Web]:
    pytest.importorskip("requests")
    reading_tool.write(cluster)
    with web_server.serve(host=cluster.nodes.gateway) as web:
        yield web


def run(cluster: Cluster, url: str, *options: str, wanted: int = 0) -> list[list[str]]:
    words = (
        f"{cluster.millrace} run --hosts {','.join(NAMES[1:])} --slots 2 --batch 2 --verify 0 --progress none --shared {url} "
        f"{' '.join(options)} --format fasta -- ./tool {url} < in.fa > out.fa"
    )
    process = cluster.start_command(words)
    assert process.wait(timeout=harness.LONGEST_SECONDS) == wanted, cluster.said
    lines = Path(cluster.site.output).read_text().splitlines()
    found = [line.split() for line in lines if line.startswith("node")]
    assert found, (lines[:3], cluster.said)
    return found


def test_the_server_is_read_once_for_all_nodes(cluster: Cluster, server: web_server.Web) -> None:
    url = server.put("db/set.bin", os.urandom(9_000_001))
    used = run(cluster, url)
    said = [line.split() for line in reading_tool.seen(cluster)]
    assert all(line in said for line in used)
    assert {host for host, *_ in said} == set(NAMES[1:])
    assert len({copy for _, copy, _, _ in said}) == 3, "one copy a node"
    assert len({checksum for _, _, checksum, _ in said}) == 1, "the same bytes"
    assert {name for *_, name in said} == {"set.bin"}
    # The head plans the run, so that it needs a copy too.
    assert server.n_downloads == 2
    run(cluster, url, "--fresh")
    assert server.n_downloads == 2, "kept"


@pytest.mark.slow
def test_output_is_written_to_a_url(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = "--slots 2 --batch 2 --verify 0 --progress none --input in.fa --output s3://blast/out.fa"
    with storage_servers.s3_of_nodes(cluster.nodes.gateway, monkeypatch) as (client, environ):
        process = cluster.start_command(
            f"{environ} {cluster.millrace} run --hosts {','.join(NAMES[1:])} {options} -- ./tool in.fa s3://blast/out.fa",
            sleep="0",
        )
        assert process.wait(timeout=harness.LONGEST_SECONDS) == 0, cluster.said
        found = client.get_object(Bucket="blast", Key="out.fa")["Body"].read()
        assert found == (cluster.site.folder / "in.fa").read_bytes().replace(b">", b">seen ")
        assert not cluster.site.output.exists()
