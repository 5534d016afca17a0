"""How fast a file is read through a view, beside the client that the view is made of.

    python -m bench.view [--mb 256] [--repeats 3]

A web server, an S3 server and an HDFS of two DataNodes on this machine, each in a process of its own, have a file of so many MB. Read
from its beginning to its end, by a process of its own:

- client: `millrace.storage.locations`, as `millrace data stage` reads it, its bytes thrown away;
- cold: `dd` in a view (`millrace data mount`) of a node that has nothing of the file;
- warm: the same in a new view, on a node that has read it before, so that its cache has the file and the kernel has not.

Needs /dev/fuse; for HDFS Java and Hadoop (make tools).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import storage_servers  # noqa: E402
import web_server  # noqa: E402
from harness import wait_until  # noqa: E402
from mounted_views import mounted  # noqa: E402

from bench.results import show_table  # noqa: E402

NAME = "file.bin"

CLIENT = """
import sys
from contextlib import closing
from millrace.storage import locations
with closing(locations.open_location(sys.argv[1])) as location:
    about = location.query_status()
    assert sum(len(piece) for piece in location.stream_bytes(0, about.size, about)) == about.size
"""

WEB = """
import sys
from pathlib import Path
import web_server
with web_server.serve() as web:
    web.put(sys.argv[1], Path(sys.argv[2]).read_bytes())
    print(web.url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def web(content: Path) -> Iterator[str]:
    """The URL of a folder that holds the file."""
    environ = {**os.environ, "PYTHONPATH": str(Path(web_server.__file__).parent)}
    command = [sys.executable, "-c", WEB, NAME, str(content)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True) as process:
        assert process.stdin and process.stdout
        yield process.stdout.readline().strip()
        process.stdin.close()


@contextmanager
def bucket(content: Path) -> Iterator[str]:
    """The same of S3."""
    import boto3

    with storage_servers.s3() as address:
        os.environ |= {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
                       "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip
        client = boto3.client("s3")
        client.create_bucket(Bucket="bench")
        client.upload_file(str(content), "bench", NAME)
        yield "s3://bench"


@contextmanager
def hdfs(content: Path) -> Iterator[str]:
    """The same of HDFS."""
    import hdfs_native

    with tempfile.TemporaryDirectory() as folder, storage_servers.hdfs(Path(folder)) as told:
        options = hdfs_native.WriteOptions(block_size=64 << 20, replication=1)
        with hdfs_native.Client(told["uri"]).create(f"/bench/{NAME}", options) as file, content.open("rb") as read:
            shutil.copyfileobj(read, file, 1 << 20)
        yield f"{told['uri']}/bench"


PLACES: dict[str, Callable[[Path], AbstractContextManager[str]]] = {"HTTP": web, "S3": bucket, "HDFS": hdfs}


def seconds(command: list[str]) -> float:
    """How long a command takes, which reads the whole file."""
    begun = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - begun


def measure(url: str, n_bytes: int, folder: Path) -> dict[str, float]:
    """MB/s of each way, once."""
    start = seconds([sys.executable, "-c", "from millrace.storage import locations"])
    taken = {"client": seconds([sys.executable, "-c", CLIENT, f"{url}/{NAME}"]) - start}
    shutil.rmtree(folder / "cache", ignore_errors=True)
    for way in ("cold", "warm"):
        with mounted(f"{url}/", folder / "view", folder / "cache"):
            taken[way] = seconds(["dd", f"if={folder}/view/{NAME}", "of=/dev/null", "bs=1M"])
            if not wait_until(lambda: any((folder / "cache").glob(f"*/*-{NAME}"))):
                sys.exit(f"{url}: the cache of the node did not get the file")
    return {way: n_bytes / 1e6 / each for way, each in taken.items()}


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = folder / "content"
        content.write_bytes(os.urandom(options.mb << 20))
        for place, serve in PLACES.items():
            if place == "HDFS" and (reason := storage_servers.no_hdfs()):
                sys.exit(reason)
            with serve(content) as url:
                found = [measure(url, options.mb << 20, folder) for _ in range(options.repeats)]
            median = {way: statistics.median(each[way] for each in found) for way in found[0]}
            lines.append((place, *(f"{median[way]:.0f}" for way in ("client", "cold", "warm")),
                          f"{median['cold'] / median['client']:.2f}", f"{median['warm'] / median['client']:.2f}"))  # fmt: skip
    head = ("MB/s", "client", "view, cold", "view, warm", "cold / client", "warm / client")
    show_table("view", head, lines)


if __name__ == "__main__":
    main()
