"""Real servers of files."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import sftp_server
import storage_servers
import web_server
from session_resources import shared

REPO = Path(__file__).resolve().parent.parent.parent

#: What a user's own clients would be told by his environment.
OWN = ("NETRC", "HADOOP_CONF_DIR", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy")


@pytest.fixture(autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, without anybody's credentials."""
    home = tmp_path_factory.mktemp("home")
    for name in [*OWN, *(name for name in os.environ if name.startswith("AWS_"))]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("MILLRACE_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    (home / "config").mkdir()
    return home


@pytest.fixture
def web() -> Iterator[web_server.Web]:
    pytest.importorskip("requests")
    with web_server.serve() as web:
        yield web


@pytest.fixture
def secure_web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[web_server.Web]:
    """The same by HTTPS, with a certificate of its own, in ``REQUESTS_CA_BUNDLE``."""
    pytest.importorskip("requests")
    both = tmp_path / "certificate.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", tmp_path / "key.pem", "-out", both],
        capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("needs openssl")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(both))
    served = tmp_path / "both.pem"
    served.write_bytes(both.read_bytes() + (tmp_path / "key.pem").read_bytes())
    with web_server.serve(served) as web:
        yield web


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """An S3 server in a process of its own; its address."""
    pytest.importorskip("boto3")
    pytest.importorskip("moto.server")
    with storage_servers.s3() as address:
        yield address


@pytest.fixture
def bucket(moto: str, environment: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket that credentials in ``~/.aws`` open."""
    import boto3

    urllib.request.urlopen(f"{moto}/moto-api/reset", data=b"").close()  # what other tests have put there

    (environment / ".aws").mkdir()
    (environment / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = mark-key-id\naws_secret_access_key = mark-secret-key\n"
    )
    (environment / ".aws" / "config").write_text("[default]\nregion = us-east-1\n")
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    boto3.client("s3").create_bucket(Bucket="blast")
    return "s3://blast"


@pytest.fixture
def ftp(tmp_path: Path) -> Iterator[str]:
    """The URL of an FTP server of ``tmp_path``, and of ``private`` there for those who log in."""
    pytest.importorskip("pyftpdlib")
    with storage_servers.ftp(tmp_path, tmp_path / "private") as url:
        yield url


@pytest.fixture(scope="session")
def small_hdfs(session_folder: Path) -> Iterator[dict[str, str]]:
    """An HDFS with two DataNodes, one for all workers: its URL, and the address of WebHDFS."""
    pytest.importorskip("hdfs_native")
    if reason := storage_servers.no_hdfs():
        pytest.skip(reason)
    with shared(session_folder / "hdfs", storage_servers.hdfs) as told:
        yield told


@pytest.fixture(scope="session")
def name_node(small_hdfs: dict[str, str]) -> str:
    """The URL of an HDFS."""
    return small_hdfs["uri"]


@pytest.fixture
def hdfs_folder(tmp_path: Path) -> str:
    """The name of a folder in HDFS that no other test of any worker uses."""
    return f"{tmp_path.parent.name}-{tmp_path.name}"


@pytest.fixture
def hdfs(name_node: str, hdfs_folder: str) -> Callable[[str, bytes], str]:
    """Writes a file into a folder of this test's own, and gives its URL."""

    def put(name: str, content: bytes) -> str:
        storage_servers.put(name_node, f"/{hdfs_folder}/{name}", content)
        return f"{name_node}/{hdfs_folder}/{quote(name)}"

    return put


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """(``sftp://host:port``, folder of the ``ssh`` that may log in)."""
    pytest.importorskip("paramiko")
    if reason := sftp_server.reason_not():
        pytest.skip(reason)
    binaries = tmp_path_factory.mktemp("ssh-bin")
    with sftp_server.serve(tmp_path_factory.mktemp("sshd"), binaries) as url:
        yield url, binaries


@pytest.fixture
def sftp(ssh_server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> str:
    url, binaries = ssh_server
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    return url
