"""Every place gives size, version, parts and names, and tells what is wrong in words."""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest
import storage_servers
from web_server import Web

from millrace.core.errors import MillraceError, RefusedError
from millrace.storage import locations
from millrace.storage.clients.base import (
    ChangedError,
    DeniedError,
    ExpiredError,
    FileLocation,
    LocationError,
    MissingError,
    UnreachableError,
)
from millrace.storage.clients.sftp import _SshChannelSocket as Socket

CONTENT = os.urandom(3_000_017)

#: Parts at and across the pieces of clients.
PARTS = ((0, 1), (0, 3_000_017), (1_048_575, 2), (2_999_990, 27), (32_767, 65_537), (1_500_000, 0))


@pytest.fixture(params=["local", "http", "https", "s3", "sftp", "hdfs", "ftp"])
def placed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """(URL of a file with CONTENT, beside it ``other``; URL of their folder)."""
    kind = request.param
    if kind in ("http", "https"):
        web: Web = request.getfixturevalue("web" if kind == "http" else "secure_web")
        web.put("db/other", b"x")
        return web.put("db/nr 1.faa", CONTENT).replace(" ", "%20"), f"{web.url}/db/"
    if kind == "hdfs":
        put = request.getfixturevalue("hdfs")
        put("db/deeper/one", b"x")
        put("db/other", b"x")
        url = put("db/nr 1.faa", CONTENT)
        return url, url.rpartition("/")[0]
    if kind == "s3":
        import boto3

        url = request.getfixturevalue("bucket")
        for name, content in (("db/nr 1.faa", CONTENT), ("db/other", b"x"), ("db/deeper/one", b"x")):
            boto3.client("s3").put_object(Bucket="blast", Key=name, Body=content)
        return f"{url}/db/nr 1.faa", f"{url}/db"
    folder = tmp_path / "db"
    (folder / "deeper").mkdir(parents=True)
    (folder / "nr 1.faa").write_bytes(CONTENT)
    (folder / "other").write_bytes(b"x")
    if kind == "sftp":
        url = request.getfixturevalue("sftp")
        return f"{url}{folder}/nr%201.faa", f"{url}{folder}"
    if kind == "ftp":
        url = request.getfixturevalue("ftp")
        return f"{url}/db/nr%201.faa", f"{url}/db"
    return str(folder / "nr 1.faa"), str(folder)


def read(url: str, offset: int, length: int) -> bytes:
    with closing(locations.open_location(url)) as location:
        return location.read_bytes(offset, length, location.query_status())


def test_size_version_parts_and_names_are_those_of_the_file(placed: tuple[str, str]) -> None:
    with closing(locations.open_location(placed[0])) as location:
        about = location.query_status()
        assert (about.size, bool(about.version), about) == (len(CONTENT), True, location.query_status())
        for offset, length in PARTS:
            assert location.read_bytes(offset, length, about) == CONTENT[offset : offset + length]
        pieces = [*location.stream_ranges([(offset, offset + length) for offset, length in PARTS], about)]
        assert all(CONTENT[at : at + len(piece)] == piece for at, piece in pieces)
        assert sum(len(piece) for _, piece in pieces) == sum(length for _, length in PARTS)
    with closing(locations.open_location(placed[1])) as folder:
        assert folder.list_names() == ["nr 1.faa", "other"]


def test_missing_file_is_reported_as_missing(placed: tuple[str, str]) -> None:
    url = placed[0].replace("nr", "nt")
    with closing(locations.open_location(url)) as location, pytest.raises(MissingError) as told:
        location.query_status()
    assert told.value.message == f"{url}: no such file" and told.value.hint


def change(url: str, content: bytes, request: pytest.FixtureRequest) -> None:
    """Put other bytes in the place of a file."""
    if url.startswith("s3:"):
        import boto3

        boto3.client("s3").put_object(Bucket="blast", Key="db/nr 1.faa", Body=content)
    elif url.startswith("hdfs:"):
        request.getfixturevalue("hdfs")("db/nr 1.faa", content)
    elif url.startswith("http"):
        web: Web = request.getfixturevalue("secure_web" if url.startswith("https") else "web")
        web.put("db/nr 1.faa", content)
    else:
        root = request.getfixturevalue("tmp_path") if url.startswith("ftp:") else Path("/")
        path = root / url.split("://")[-1].partition("/")[2].replace("%20", " ").lstrip("/")
        before = path.stat()
        path.write_bytes(content)
        os.utime(path, (before.st_atime, before.st_mtime + 2))


def test_changed_file_ends_its_reading(placed: tuple[str, str], request: pytest.FixtureRequest) -> None:
    with closing(locations.open_location(placed[0])) as location:
        about = location.query_status()
        assert location.read_bytes(0, 10, about) == CONTENT[:10]
        change(placed[0], CONTENT[::-1], request)
        with pytest.raises(ChangedError, match="changed while it was read"):
            location.read_bytes(10, 10, about)
        assert location.read_bytes(10, 10, location.query_status()) == CONTENT[::-1][10:20]


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, DeniedError, "wants a name and a password"),
        (403, DeniedError, "permission denied"),
        (404, MissingError, "no such file"),
        (418, LocationError, "answered 418"),
        (429, UnreachableError, "cannot answer now"),
        (503, UnreachableError, "cannot answer now"),
    ],
)
def test_web_server_refusal_has_place_cause_and_hint(
    web: Web, status: int, kind: type[MillraceError], words: str
) -> None:
    url = web.put("nr.faa", CONTENT)
    web.status = status
    with pytest.raises(kind) as told:
        locations.query_file_status(url)
    assert told.value.message.startswith(f"{url}: ") and words in told.value.message and told.value.hint


def test_cut_web_connection_is_detected(web: Web) -> None:
    url = web.put("nr.faa", CONTENT)
    web.cut = 100_000
    with pytest.raises(UnreachableError, match="no whole answer"):
        read(url, 0, len(CONTENT))


def test_web_server_without_ranges_reads_the_right_part(web: Web) -> None:
    """Its status reports that it has no ranges."""
    url = web.put("nr.faa", CONTENT)
    web.ranges = False
    assert locations.query_file_status(url).has_ranges is False
    for offset, length in PARTS:
        assert read(url, offset, length) == CONTENT[offset : offset + length]


def test_an_empty_file_is_one(web: Web) -> None:
    assert locations.query_file_status(web.put("nothing", b"")).size == 0
    assert read(web.put("nothing", b""), 0, 0) == b""


def test_digest_of_a_web_server_is_that_of_the_file(web: Web) -> None:
    url = web.put("nr.faa", CONTENT)
    web.tells_digest = True
    assert locations.query_file_status(url).checksum == f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


def test_digest_of_s3_is_used_unless_sent_in_parts(bucket: str) -> None:
    """The digest of an object in parts is not that of its bytes."""
    import boto3

    client = boto3.client("s3")
    client.put_object(Bucket="blast", Key="one", Body=CONTENT)
    assert locations.query_file_status(f"{bucket}/one").checksum == f"md5:{hashlib.md5(CONTENT).hexdigest()}"
    upload = client.create_multipart_upload(Bucket="blast", Key="two")["UploadId"]
    tag = client.upload_part(Bucket="blast", Key="two", UploadId=upload, PartNumber=1, Body=CONTENT)["ETag"]
    client.complete_multipart_upload(
        Bucket="blast", Key="two", UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]}
    )
    assert locations.query_file_status(f"{bucket}/two").checksum == ""
    assert read(f"{bucket}/two", 5, 10) == CONTENT[5:15]


def test_password_in_netrc_is_used(web: Web, environment: Path) -> None:
    url = web.put("nr.faa", CONTENT)
    web.login = "mark-user:mark-word"
    with pytest.raises(DeniedError):
        locations.query_file_status(url)
    netrc = environment / ".netrc"
    netrc.write_text("machine localhost login mark-user password mark-word\n")
    netrc.chmod(stat.S_IRUSR | stat.S_IWUSR)
    assert locations.query_file_status(url).size == len(CONTENT)


def test_untrusted_certificate_is_refused(secure_web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    url = secure_web.put("nr.faa", CONTENT)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    with pytest.raises(DeniedError, match="certificate is not trusted"):
        locations.query_file_status(url)


def test_unreachable_servers_are_named(sftp: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for url in (
        "http://127.0.0.1:9/nr.faa",
        "ftp://127.0.0.1:9/nr.faa",
        "sftp://127.0.0.1:9/nr.faa",
        f"{bucket}/nr.faa",
    ):
        with closing(locations.open_location(url)) as location, pytest.raises(UnreachableError) as told:
            location.query_status()
        assert (told.value.message.startswith(f"{url}: ") and "refused" in str(told.value)) or "connect" in str(
            told.value
        )


def test_unknown_host_key_is_refused(sftp: str, tmp_path: Path) -> None:
    url = sftp.replace("127.0.0.1", "localhost")
    with closing(locations.open_location(f"{url}{tmp_path}")) as location, pytest.raises(DeniedError) as told:
        location.query_status()
    assert "Host key verification failed" in told.value.message and "sftp -P" in told.value.hint


def refuse_s3(monkeypatch: pytest.MonkeyPatch, code: str, status: int) -> None:
    """Let the server answer with an error, as AWS does: a question for the head has no words in its answer."""
    import botocore.endpoint
    from botocore.awsrequest import AWSResponse

    class Raw:
        def __init__(self, content: bytes) -> None:
            self.content = content

        def stream(self, **_: object) -> list[bytes]:
            return [self.content]

    def send(self: object, request: object) -> AWSResponse:
        body = b"" if request.method == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()  # type: ignore[attr-defined]
        return AWSResponse("http://x", status, {}, Raw(body))

    monkeypatch.setattr(botocore.endpoint.Endpoint, "_send", send)


@pytest.mark.parametrize(
    ("code", "status", "kind", "words"),
    [
        ("ExpiredToken", 400, ExpiredError, "the credentials have expired"),
        ("AccessDenied", 403, DeniedError, "permission denied"),
        ("InvalidAccessKeyId", 403, DeniedError, "permission denied"),
    ],
)
def test_s3_refusal_is_reported_with_its_cause(
    bucket: str, monkeypatch: pytest.MonkeyPatch, code: str, status: int, kind: type[MillraceError], words: str
) -> None:
    refuse_s3(monkeypatch, code, status)
    with pytest.raises(kind, match=words) as told:
        locations.query_file_status(f"{bucket}/nr.faa")
    assert "mark-" not in str(told.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("gopher://host/nr.faa", "cannot read gopher://"),
        ("nr.faa", "neither an absolute path nor a URL"),
        ("https://me:word@host/nr.faa", "https://host/nr.faa: holds a user name or password"),
        ("ftp://me:word@host/nr.faa", "ftp://host/nr.faa: holds a user name or password"),
        ("sftp://me:word@host/nr.faa", "sftp://host/nr.faa: holds a user name or password"),
        (
            "https://host/nr.faa?X-Amz-Signature=word",
            r"https://host/nr.faa\?...: a parameter of it is as good as a password",
        ),
        ("https:///nr.faa", "names no host"),
        ("https://host:port/nr.faa", "not a URL"),
        ("sftp://-oProxyCommand=word/nr.faa", "not the name of a host"),
    ],
)
def test_invalid_location_is_refused_without_its_secrets(url: str, words: str) -> None:
    with pytest.raises(RefusedError, match=words) as told:
        locations.open_location(url)
    assert ":word" not in str(told.value) and "=word" not in str(told.value).replace("-oProxyCommand=word", "")


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("https://host/a", "requests", "http"),
        ("s3://bucket/a", "boto3", "s3"),
        ("sftp://host/a", "paramiko", "sftp"),
        ("hdfs://host/a", "hdfs_native", "hdfs"),
    ],
)
def test_missing_client_is_named_with_its_pip_command(
    monkeypatch: pytest.MonkeyPatch, url: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(RefusedError) as told:
        locations.open_location(url)
    assert package in told.value.message and told.value.hint == f"pip install 'millrace[{extra}]'"


def test_folder_is_not_a_plain_file(sftp: str, ftp: str, tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    for url in (str(tmp_path), f"{sftp}{tmp_path}", f"{ftp}/db"):
        with closing(locations.open_location(url)) as location, pytest.raises(LocationError, match="not a plain file"):
            location.query_status()


def test_sftp_error_after_the_last_byte_is_ignored(sftp: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of paramiko asks for pieces, and what it has not asked for when the last answer came is read without it."""
    (tmp_path / "nr").write_bytes(CONTENT)
    closed, asked, here, send = threading.Event(), itertools.count(), threading.current_thread(), Socket.send
    threads = set[threading.Thread]()

    def late(self: Socket, data: bytes) -> int:
        if threading.current_thread() is not here:
            threads.add(threading.current_thread())
            if next(asked):
                assert closed.wait(300)
        return send(self, data)

    monkeypatch.setattr(Socket, "send", late)
    failed = list[object]()
    monkeypatch.setattr(threading, "excepthook", failed.append)
    assert read(f"{sftp}{tmp_path}/nr", 0, len(CONTENT)) == CONTENT
    closed.set()
    for thread in threads:
        thread.join()
    assert threads and not failed


def test_early_end_of_data_is_an_error(tmp_path: Path) -> None:
    class Short(FileLocation):
        query_status = list_names = None  # type: ignore[assignment]

        def stream_bytes(self, *_: object) -> list[bytes]:  # type: ignore[override]
            return [b"abc"]

    with pytest.raises(UnreachableError, match="ended after 3 of 4 bytes"):
        Short.__abstractmethods__ = frozenset()
        Short("/x", "/x").read_bytes(0, 4, None)  # type: ignore[arg-type]


def test_unanswered_hdfs_blocks_are_an_error_with_a_hint() -> None:
    """The message leaves out the details of blocks and DataNodes."""
    pytest.importorskip("hdfs_native")
    from millrace.storage.clients.hdfs import HdfsLocation

    url = "hdfs://127.0.0.1:1/db.fa"
    told = HdfsLocation(url, url).make_refusal_error(
        'DataTransferError("All DataNodes failed: [DatanodeInfoProto { id: 1 }]")'
    )
    assert told.message == f"{url}: no DataNode that holds a part of it answers" and "NameNode" in told.hint


def test_ftp_login_is_that_of_netrc(ftp: str, tmp_path: Path, environment: Path) -> None:
    """Without one it is anonymous, and a wrong one is refused."""
    (tmp_path / "private" / "own").write_bytes(b"mine")
    with pytest.raises(MissingError):
        locations.query_file_status(f"{ftp}/own")
    netrc = environment / ".netrc"
    for word, code in (("mark-word", 0), ("mark-other", 1)):
        netrc.write_text(f"machine 127.0.0.1 login mark-user password {word}\n")
        netrc.chmod(stat.S_IRUSR | stat.S_IWUSR)
        if code == 0:
            assert read(f"{ftp}/own", 1, 2) == b"in"
            continue
        with pytest.raises(DeniedError, match="wants a name and a password") as told:
            locations.query_file_status(f"{ftp}/own")
        assert word not in str(told.value)


def test_old_ftp_server_lists_names_and_tells_no_version(tmp_path: Path) -> None:
    (tmp_path / "nr 1.faa").write_bytes(CONTENT)
    with storage_servers.ftp(tmp_path, tmp_path / "private", "MLSD", "MDTM") as url:
        with closing(locations.open_location(f"{url}/")) as folder:
            assert (folder.list_names(), folder.list_names(folders=True)) == (["nr 1.faa"], ["private"])
        about = locations.query_file_status(f"{url}/nr%201.faa")
        assert (about.size, about.version) == (len(CONTENT), "")
        assert read(f"{url}/nr%201.faa", 1_000_000, 70_000) == CONTENT[1_000_000:1_070_000]


def test_ftp_refuses_writes_and_line_breaks_in_names(ftp: str) -> None:
    with (
        closing(locations.open_location(f"{ftp}/a")) as location,
        pytest.raises(RefusedError, match="cannot be written"),
    ):
        location.check_writable()
    with closing(locations.open_location(f"{ftp}/a%0d%0aDELE%20b")) as location, pytest.raises(LocationError) as told:
        location.query_status()
    assert "not a name of a file" in told.value.message
