"""Real servers of S3, FTP and HDFS, each in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

JARS = Path(__file__).resolve().parent.parent.parent / ".tools" / "hadoop"

MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
server.stop()
"""


@contextmanager
def s3() -> Iterator[str]:
    """Its address."""
    with subprocess.Popen(
        [sys.executable, "-c", MOTO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout and process.stdin
        host, port = process.stdout.readline().split()
        yield f"http://{host.decode()}:{port.decode()}"
        process.stdin.close()


@contextmanager
def s3_of_nodes(address: str, monkeypatch: pytest.MonkeyPatch, *, verbose: bool = False) -> Iterator[tuple[Any, str]]:
    """A server in this process that nodes reach, with a bucket ``blast``: its client, and words that let a command there use it."""
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(address, 0, verbose=verbose)
    server.start()
    try:
        host, port = server.get_host_and_port()
        settings = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1"}  # fmt: skip
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="blast")
        words = " ".join(f"{name}={value}" for name, value in settings.items())
        yield client, f"env {words} PYTHONPATH={Path(boto3.__file__).parents[1]}"
    finally:
        server.stop()


FTP = """
import os, sys, threading
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
FTPHandler.authorizer = DummyAuthorizer()
FTPHandler.authorizer.add_anonymous(sys.argv[1])
FTPHandler.authorizer.add_user("mark-user", "mark-word", sys.argv[2])
for name in sys.argv[3:]:
    del FTPHandler.proto_cmds[name]
server = FTPServer(("127.0.0.1", 0), FTPHandler)
print(server.address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
"""


@contextmanager
def ftp(public: Path, private: Path, *lacks: str) -> Iterator[str]:
    """Its URL: a folder for everybody, and one for ``mark-user``, whose password is ``mark-word``.

    Args:
        lacks: Commands that it does not know.
    """
    private.mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", FTP, public, private, *lacks],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout and process.stdin
        yield f"ftp://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


def no_hdfs() -> str:
    """Why there can be none here; empty: there can."""
    ok = shutil.which("java") and JARS.is_dir()
    return "" if ok else "not installed: java, and Hadoop in .tools/hadoop (make tools, with mvn)"


def put(uri: str, path: str, content: bytes) -> None:
    """Write a file in blocks of 1 MiB, one copy of each."""
    import hdfs_native

    options = hdfs_native.WriteOptions(block_size=1 << 20, replication=1, overwrite=True)
    deadline = time.monotonic() + 300
    while True:
        try:
            with hdfs_native.Client(uri).create(path, options) as file:
                file.write(content)
            return
        except RuntimeError:  # a busy DataNode has not reported its blocks in the client's time
            if time.monotonic() > deadline:
                raise


@contextmanager
def hdfs(folder: Path) -> Iterator[dict[str, str]]:
    """Two DataNodes, all of it in one Java process, which ends with its input: its URL, and the address of WebHDFS."""
    settings = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Ddir={folder}/data", "-Ddn=2", "-Drepl=1"]
    program = Path(__file__).with_name("hdfs") / "MiniHdfs.java"
    with (folder / "log").open("wb") as log, subprocess.Popen(
        ["java", *settings, "-cp", f"{JARS}/*", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
    ) as process:  # fmt: skip
        assert process.stdout and process.stdin
        line = process.stdout.readline()
        assert line, (folder / "log").read_text()
        yield json.loads(line)
        process.stdin.close()
