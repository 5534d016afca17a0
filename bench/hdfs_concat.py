"""What it costs to let each writer put its results into HDFS by itself, as SDAFT does, and to join the files there.

    python -m bench.hdfs_concat [--results 120] [--kilobytes 128]      # Java, Hadoop of `make tools`

The same bytes are written as one file by one writer, as the coordinator does; and as a file for each result, in the order of the
input, which HDFS then joins by `CONCAT` of WebHDFS. A file of each writer alone would not do: its results stand between those of others in the
output. Seconds, the blocks of what was made, and what HDFS refuses to join.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import hdfs_native  # noqa: E402
import storage_servers  # noqa: E402

from bench.results import show_table  # noqa: E402

BLOCK = 64 << 20


class Files:
    """Files of one HDFS."""

    def __init__(self, server: dict[str, str]) -> None:
        self._client, self._http = hdfs_native.Client(server["uri"]), server["http"]

    def write(self, path: str, pieces: list[bytes], block: int = BLOCK) -> None:
        options = hdfs_native.WriteOptions(block_size=block, replication=1, overwrite=True)
        with self._client.create(path, options) as file:
            for piece in pieces:
                file.write(piece)

    def read(self, path: str) -> bytes:
        with self._client.read(path) as file:
            return bytes(file.read())

    def concat(self, target: str, sources: list[str]) -> str:
        """Join ``sources`` behind ``target``; return why HDFS refuses that."""
        try:
            self._ask("POST", target, op="CONCAT", sources=",".join(sources))
        except urllib.error.HTTPError as error:
            return str(json.loads(error.read())["RemoteException"]["message"])
        return ""

    def count_blocks(self, path: str) -> int:
        found = json.loads(self._ask("GET", path, op="GETFILEBLOCKLOCATIONS"))
        return len(found["BlockLocations"]["BlockLocation"])

    def _ask(self, method: str, path: str, **query: str) -> bytes:
        words = urlencode({**query, "user.name": os.environ.get("USER", "root")})
        request = urllib.request.Request(f"{self._http}/webhdfs/v1{path}?{words}", method=method)
        with urllib.request.urlopen(request) as answer:
            return bytes(answer.read())


def measure(files: Files, results: list[bytes]) -> list[tuple[str, ...]]:
    """Write the results in both ways; a row for each."""
    begun = time.monotonic()
    files.write("/one", results)
    one = time.monotonic() - begun
    names = [f"/part{k:05}" for k in range(len(results))]
    begun = time.monotonic()
    for name, result in zip(names, results, strict=True):
        files.write(name, [result])
    written = time.monotonic() - begun
    if why := files.concat(names[0], names[1:]):
        sys.exit(why)
    joined = time.monotonic() - begun - written
    if files.read("/one") != files.read(names[0]):
        sys.exit("the joined file has other bytes")
    return [
        ("one file, one writer", f"{one:.1f} s", "", str(files.count_blocks("/one"))),
        ("a file for each result", f"{written:.1f} s", f"{joined:.1f} s", str(files.count_blocks(names[0]))),
    ]


def find_refusals(files: Files) -> list[str]:
    """What `CONCAT` refuses: an empty source, one of another folder, one with larger blocks."""
    files.write("/empty", [])
    files.write("/folder/other", [b"x"])
    files.write("/small", [b"x"], 1 << 20)
    found = []
    for target, source in (("/large", "/empty"), ("/large", "/folder/other"), ("/small", "/large")):
        files.write("/large", [b"x"])
        found.append(files.concat(target, [source]) or f"{source} was joined to {target}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=120)
    parser.add_argument("--kilobytes", type=int, default=128, help="of each result")
    asked: Any = parser.parse_args()
    if reason := storage_servers.no_hdfs():
        raise SystemExit(reason)
    results = [os.urandom(asked.kilobytes << 10) for _ in range(asked.results)]
    with tempfile.TemporaryDirectory(prefix="mr-") as folder, storage_servers.hdfs(Path(folder)) as server:
        files = Files(server)
        show_table("hdfs_concat", ("results as", "written", "joined", "blocks of the file"), measure(files, results))
        print(*(f"- refused: {why}" for why in find_refusals(files)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
