"""Outputs that are URLs: the serial bytes are there when all of them are, and not before."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness import wait_until
from mpi_jobs import find
from shell import Shell
from tool_batches import need
from web_server import Web

from millrace.core.errors import MillraceError
from millrace.storage import locations
from millrace.storage.clients import s3
from millrace.storage.clients.base import MAX_TRIES, FileLocation, UnreachableError


@pytest.fixture(params=["bucket", "sftp", "hdfs"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a folder that is there."""
    server = request.getfixturevalue(request.param)
    if request.param == "sftp":
        (tmp_path / "there").mkdir()
        return f"{server}{tmp_path}/there"
    if request.param == "hdfs":
        return str(server("begin", b"x")).rpartition("/")[0]
    return f"{server}/{tmp_path.name}"


def content(url: str) -> bytes:
    with closing(locations.open_location(url)) as location:
        return location.read_bytes(0, (about := location.query_status()).size, about)


def names(folder: str) -> list[str]:
    with closing(locations.open_location(folder)) as location:
        return [name for name in location.list_names() if name != "begin"]


def write(location: FileLocation, pieces: Callable[[], Iterable[bytes]], n_bytes: int) -> None:
    """A NameNode that has much to do may refuse a block; then whoever sends begins again, as the outbox does."""
    for k in range(MAX_TRIES):
        try:
            location.write_file(pieces(), n_bytes)
            return
        except UnreachableError:
            if k + 1 == MAX_TRIES:
                raise


def test_output_appears_at_its_url_when_complete(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 5 << 20)
    url, pieces = f"{folder}/hits.tsv", [os.urandom(3 << 20) for _ in range(4)]
    if not folder.startswith("s3://"):  # which has no folders
        with (
            closing(locations.open_location(folder)) as location,
            pytest.raises(MillraceError, match="not a plain file"),
        ):
            location.check_writable()

    def watched() -> Iterator[bytes]:
        for piece in pieces:
            assert "hits.tsv" not in names(folder)
            yield piece

    def cut_off() -> Iterator[bytes]:
        yield pieces[0]
        raise MillraceError("no more")

    with closing(locations.open_location(url)) as location:
        location.check_writable()
        assert names(folder) == []
        write(location, watched, 12 << 20)
        assert content(url) == b"".join(pieces)
        with pytest.raises(MillraceError, match="no more"):
            write(location, cut_off, 12 << 20)
        assert content(url) == b"".join(pieces)
        write(location, lambda: [b"new"], 3)
        assert content(url) == b"new"
        write(location, list, 0)
        assert content(url) == b""
    assert names(folder) == ["hits.tsv"]


def test_command_output_is_sent_to_a_url(folder: str, shell: Shell) -> None:
    """A run that is killed goes on, and nothing is to be seen of it before its end."""
    url = f"{folder}/out.fa"
    shell.tool("hold", 'echo >> "$MARK/begun"; while [ ! -e "$MARK/go" ]; do sleep 0.05; done; cp "$1" "$2"')
    line = f"millrace run --batch 1 --slots 1 --input in.fa --output {url} -- hold in.fa {url}"
    killed = subprocess.Popen(
        ["bash", "-c", f"exec {line}"], cwd=shell.work, stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)},
    )  # fmt: skip
    assert wait_until((shell.root / "begun").exists)
    killed.kill()
    killed.wait()
    assert names(folder) == []
    (shell.root / "go").touch()
    done = shell.run(line)
    assert done.code == 0 and f"sent out.fa to {url}" in done.err, done.shown
    assert content(url) == (shell.work / "in.fa").read_bytes()
    assert names(folder) == ["out.fa"]
    assert sorted(path.name for path in shell.work.iterdir()) == ["in.fa"]


#: Sends one part, says so, and is killed.
CUT_OFF = """
import os, pathlib, sys
from contextlib import closing
from millrace.storage import locations
from millrace.storage.clients import s3
s3.PART_BYTES = 5 << 20
note, url = sys.argv[1:]
def pieces():
    yield bytes(6 << 20)
    os.kill(os.getpid(), 9)
with closing(locations.open_location(url)) as location:
    location.write_file(pieces(), 12 << 20, lambda begun: pathlib.Path(note).write_text(f"{url}\\n{begun}"))
"""


def cut_off(note: Path, url: str) -> None:
    """Kill who sends to ``url``; again where a NameNode that has much to do refused a block before."""
    codes = (subprocess.run([sys.executable, "-c", CUT_OFF, note, url]).returncode for _ in range(MAX_TRIES))
    assert any(code == -signal.SIGKILL for code in codes)


def unfinished(folder: str) -> list[str]:
    """What of files that are being sent is there."""
    if folder.startswith("s3://"):
        import boto3

        parts = boto3.client("s3").list_multipart_uploads(Bucket="blast").get("Uploads", [])
        return [part["Key"] for part in parts if part["Key"].startswith(folder.removeprefix("s3://blast/"))]
    return [name for name in names(folder) if name.endswith(".part")]


def test_remnants_of_a_killed_sender_are_removed(folder: str, shell: Shell) -> None:
    """It goes at the next start of the same command, which says so; what another sends there stays."""
    url, note = f"{folder}/out.fa", shell.work / ".out.fa.outbox"
    cut_off(note, url)
    assert len(unfinished(folder)) == 1
    cut_off(shell.root / "another", f"{folder}/other.fa")
    assert len(unfinished(folder)) == 2
    line = f"millrace run --input in.fa --output {url} -- cp in.fa {url}"
    done = shell.run(line)
    assert done.code == 0 and "removed what of out.fa had been sent" in done.err, done.shown
    assert content(url) == (shell.work / "in.fa").read_bytes()
    assert len(unfinished(folder)) == 1
    assert sorted(path.name for path in shell.work.iterdir()) == ["in.fa"]


def test_unsent_output_is_kept_and_sent_by_the_same_command(bucket: str, shell: Shell) -> None:
    """The bucket goes while the run lasts, and comes back."""
    import boto3

    url = f"{bucket}-two/out.fa"
    boto3.client("s3").create_bucket(Bucket="blast-two")
    shell.tool("hold", 'echo >> "$MARK/begun"; while [ ! -e "$MARK/go" ]; do sleep 0.05; done; cp "$1" "$2"')
    line = f"millrace run --input in.fa --output {url} -- hold in.fa {url}"
    running = subprocess.Popen(
        ["bash", "-c", f"exec {line}"], cwd=shell.work, stderr=subprocess.PIPE,
        env={**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)},
    )  # fmt: skip
    assert wait_until((shell.root / "begun").exists)
    boto3.client("s3").delete_bucket(Bucket="blast-two")
    (shell.root / "go").touch()
    _, said = running.communicate()
    assert running.returncode == 1 and b"no such file" in said, said
    boto3.client("s3").create_bucket(Bucket="blast-two")
    begun = (shell.root / "begun").read_text()
    done = shell.run(line)
    assert done.code == 0, done.shown
    assert (shell.root / "begun").read_text() == begun, "no batch is run again"
    assert content(url) == (shell.work / "in.fa").read_bytes()
    assert sorted(path.name for path in shell.work.iterdir()) == ["in.fa"]


def test_file_of_a_removed_run_is_not_reused(bucket: str, shell: Shell) -> None:
    """A run was killed, its directory and its output were removed, and then somebody wrote a file of this name."""
    url = f"{bucket}/out.fa"
    (shell.work / ".out.fa.outbox").write_text(url)
    (shell.work / "out.fa").write_text("mine")
    done = shell.run(line := f"millrace run --input in.fa --output {url} -- cp in.fa {url}")
    assert done.code == 2 and "out.fa: would be written over on its way" in done.err, done.shown
    assert (shell.work / "out.fa").read_text() == "mine"
    (shell.work / "out.fa").unlink()
    done = shell.run(line)
    assert done.code == 0, done.shown
    assert sorted(path.name for path in shell.work.iterdir()) == ["in.fa"]


@pytest.mark.slow
def test_blastp_writes_to_s3_and_reads_from_there(bucket: str, shell: Shell) -> None:
    if missing := [name for name in ("blastp", "makeblastdb") if not shutil.which(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    import boto3

    subprocess.run(
        ["makeblastdb", "-in", "in.fa", "-dbtype", "prot", "-out", "nr"],
        cwd=shell.work, check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run(["blastp", "-query", "in.fa", "-db", "nr", "-out", "wanted"], cwd=shell.work, check=True)
    for path in shell.work.glob("nr.*"):
        boto3.client("s3").upload_file(str(path), "blast", f"db/{path.name}")
        path.unlink()
    line = f"millrace run --stage {shell.root} -- blastp -query in.fa -db {bucket}/db/nr -out {bucket}/hits.txt"
    done = shell.run(line)
    assert done.code == 0, done.shown
    assert content(f"{bucket}/hits.txt") == (shell.work / "wanted").read_bytes()
    taken = shell.run(f"{line.rpartition(' ')[0]} {bucket}/db/nr.psq")
    assert taken.code == 2 and f"nr.psq: has the name of {bucket}/db/nr.psq, which is read" in taken.err, taken.shown
    planned = shell.run(f"{line.replace('run', 'plan', 1)}")
    assert f"hits.txt goes to {bucket}/hits.txt when it is whole" in planned.out, planned.shown


def test_a_described_tool_writes_to_s3(bucket: str, shell: Shell) -> None:
    if not shutil.which("seqkit"):
        pytest.skip("not installed: seqkit")
    line = "seqkit seq --reverse --seq-type protein -o {} in.fa"
    subprocess.run(line.format("wanted").split(), cwd=shell.work, check=True)
    done = shell.run(f"millrace run -- {line.format(f'{bucket}/reversed.fa')}")
    assert done.code == 0, done.shown
    assert content(f"{bucket}/reversed.fa") == (shell.work / "wanted").read_bytes()


@pytest.mark.parametrize(
    "write",
    ["merge", *(pytest.param(way, marks=pytest.mark.slow) for way in ("individual", "collective", "coordinator"))],
)
def test_mpi_output_is_sent_with_each_write_strategy(bucket: str, tmp_path: Path, write: str) -> None:
    work, url = tmp_path / "work", f"{bucket}/{write}/out.fa"
    work.mkdir()
    (work / "in.fa").write_text("".join(f">r{k}\nMKV\n" for k in range(40)))
    (work / "tool").write_text('#!/bin/sh\nsed s/r/seen/ "$1" > "$2"\n')
    (work / "tool").chmod(0o755)
    words = [
        "run",
        "--slots",
        "1",
        "--batch",
        "2",
        "--verify",
        "0",
        "--write",
        write,
        "--input",
        "in.fa",
        "--output",
        url,
    ]
    clients = str(Path(boto3_of_this_python()).parents[1])
    code, said = find("openmpi").run(3, [*words, "--", "./tool", "in.fa", url], work, PYTHONPATH=clients)
    assert code == 0, said
    assert content(url).decode() == (work / "in.fa").read_text().replace("r", "seen")
    assert sorted(path.name for path in work.iterdir()) == ["in.fa", "stderr", "stdout", "tool"]


def boto3_of_this_python() -> str:
    """The environments of MPIs have no client of S3."""
    return str(pytest.importorskip("boto3").__file__)


REFUSED: dict[str, tuple[str, str]] = {
    "http": ("{web}/out.fa", "cannot be written"),
    "folder": ("s3://blast/folder/", "names no file"),
    "bucket": ("s3://no-such-bucket/out.fa", "no such file"),
    "name": ("s3://blast/in.fa", "would be written over on its way"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unwritable_output_url_is_refused_before_the_start(bucket: str, web: Web, shell: Shell, what: str) -> None:
    typed, words = REFUSED[what]
    url = typed.format(web=web.url)
    shell.tool("never", 'touch "$MARK/ran"')
    (shell.work / "q.fa").write_bytes((shell.work / "in.fa").read_bytes())
    done = shell.run(f"millrace run --input q.fa --output {url} -- never q.fa {url}")
    assert done.code in (1, 2) and words in done.err, done.shown
    assert sorted(path.name for path in shell.work.iterdir()) == ["in.fa", "q.fa"]
    assert not (shell.root / "ran").exists()


@pytest.mark.parametrize("folder", ["sftp", "hdfs"], indirect=True)
def test_store_at_a_url_has_what_was_computed(folder: str, environment: Path, shell: Shell, data: Path) -> None:
    """Of what was computed elsewhere nothing is here, but the store."""
    make_key = [need("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", environment / "config/millrace/store-key"]
    (environment / "config/millrace").mkdir()
    subprocess.run(make_key, check=True)
    line = (environment / "config/millrace/store-key.pub").read_text()
    (environment / "config/millrace/store-owners").write_text(f"me {line}")
    shutil.copy(data / "drugs.smi", shell.work)
    line = f"{need('obabel')} drugs.smi -oinchi -O"
    assert subprocess.run(f"{line} serial.inchi", shell=True, cwd=shell.work, capture_output=True).returncode == 0
    for known in (False, True):
        done = shell.run(f"millrace run --store {folder} -- {line} ours.inchi")
        assert done.code == 0 and (" 0 of " not in done.err and "records known" in done.err) == known, done.shown
        assert (shell.work / "ours.inchi").read_bytes() == (shell.work / "serial.inchi").read_bytes()
        (shell.work / "ours.inchi").unlink()
        shutil.rmtree(environment / "cache" / "millrace" / "stores")
    assert len(names(folder)) == 1
