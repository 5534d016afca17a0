"""A folder behind a URL, seen by programs that know of no URLs."""

from __future__ import annotations

import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import wait_until
from mounted_views import mounted, unmount
from parameter_choice import again
from shell import Shell
from web_server import Web

CONTENT = random.Random(7).randbytes(3_000_017)


def test_reads_of_a_view_return_the_bytes_of_the_file(web: Web, tmp_path: Path) -> None:
    web.put("db/nr 1.faa", CONTENT)
    web.put("db/deeper/one", b"x")
    point = tmp_path / "view"
    with mounted(f"{web.url}/db/", point, tmp_path / "cache"):
        file = point / "nr 1.faa"
        assert sorted(os.listdir(point)) == ["nr 1.faa"]
        assert (file.stat().st_size, file.stat().st_mode & 0o777) == (len(CONTENT), 0o444)
        chance = random.Random(1)
        parts = [(chance.randrange(len(CONTENT)), chance.randrange(1, 200_000)) for _ in range(40)]

        def read(part: tuple[int, int]) -> bool:
            with file.open("rb", buffering=0) as opened:
                return os.pread(opened.fileno(), part[1], part[0]) == CONTENT[part[0] : sum(part)]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, parts))
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert mapped[:] == CONTENT
        assert not (point / "none").exists()
        with pytest.raises(OSError, match="Read-only"):
            (point / "new").write_bytes(b"")


def test_bytes_read_stay_in_the_node_cache(web: Web, tmp_path: Path) -> None:
    web.put("db/nr", CONTENT)
    sent = []
    for _ in range(2):
        with mounted(f"{web.url}/db", tmp_path / "view", tmp_path / "cache"):
            assert (tmp_path / "view" / "nr").read_bytes() == CONTENT
            assert wait_until(lambda: list(tmp_path.glob("cache/*/*-nr")))
        sent.append(web.n_bytes)
    assert sent[0] == sent[1]


def test_changed_file_is_an_error_and_never_mixed(web: Web, tmp_path: Path) -> None:
    url = web.put("db/nr", CONTENT)
    with mounted(url.rpartition("/")[0], tmp_path / "view", tmp_path / "cache"):
        file = tmp_path / "view" / "nr"
        assert file.stat().st_size == len(CONTENT)
        web.put("db/nr", CONTENT[::-1])
        with pytest.raises(OSError, match="Input/output error"):
            file.read_bytes()


def test_dead_view_is_reported_as_such(web: Web, tmp_path: Path) -> None:
    web.put("db/nr", b"x")
    point = tmp_path / "view"
    with mounted(f"{web.url}/db", point, tmp_path / "cache") as view:
        view.kill()
        view.wait()
        again = [sys.executable, "-m", "millrace", "data", "mount", f"{web.url}/db", str(point)]
        told = subprocess.run(again, capture_output=True, text=True)
        assert told.returncode == 2 and f"{point}: Transport" in told.stderr and "umount it first" in told.stderr, told


def test_failed_mount_is_reported_once_with_its_hint(web: Web, bucket: str, tmp_path: Path) -> None:
    def mount(url: str, point: Path) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "millrace", "data", "mount", url, str(point), "--to", str(tmp_path)]
        return subprocess.run(words, capture_output=True, text=True)

    web.put("db/nr", b"x")
    point = tmp_path / "view"
    with mounted(f"{web.url}/db", point, tmp_path / "cache"):
        told = mount(f"{web.url}/db", point)
        assert told.returncode == 2, told
        assert told.stderr == f"millrace: {point}: something is mounted there\n\nhint: umount {point}\n"
    told = mount(f"{bucket}/none", point)
    assert told.returncode == 1 and not os.path.ismount(point), told
    assert told.stderr.startswith(f"millrace: {bucket}/none: nothing is there\n\nhint: name a folder"), told
    assert told.stderr.count("millrace") == 1, told


def test_object_with_a_question_mark_is_distinct(bucket: str, tmp_path: Path) -> None:
    """Its name was cut there: `cat nr?1` in a view gave the bytes of `nr`."""
    import boto3

    for name in ("nr", "nr?1"):
        boto3.client("s3").put_object(Bucket="blast", Key=f"odd/{name}", Body=name.encode())
    with mounted(f"{bucket}/odd", tmp_path / "view", tmp_path / "cache"):
        assert {path.name: path.read_text() for path in (tmp_path / "view").iterdir()} == {"nr": "nr", "nr?1": "nr?1"}


def test_a_server_that_lists_nothing_is_asked_by_name(web: Web, tmp_path: Path) -> None:
    web.lists = False
    web.put("db/nr", CONTENT)
    with mounted(f"{web.url}/db", tmp_path / "view", tmp_path / "cache"):
        assert (tmp_path / "view" / "nr").read_bytes() == CONTENT
        assert not (tmp_path / "view" / "nt").exists()


def database(folder: Path, n_entries: int = 300) -> dict[str, bytes]:
    """A BLAST database and its queries, in ``folder``; the files of the database."""
    if missing := [name for name in ("blastp", "makeblastdb") if not shutil.which(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    chance = random.Random(16)
    entries = ["".join(chance.choices("ACDEFGHIKLMNPQRSTVWY", k=200)) for _ in range(n_entries)]
    (folder / "all.faa").write_text("".join(f">s{k}\n{entry}\n" for k, entry in enumerate(entries)))
    (folder / "q.faa").write_text("".join(f">q{k}\n{entries[k * 9][:80]}\n" for k in range(12)))
    made = ["makeblastdb", "-in", "all.faa", "-dbtype", "prot", "-out", "nr"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    return {path.name: path.read_bytes() for path in folder.glob("nr.*")}


@pytest.fixture(params=[again("bucket"), "hdfs"])
def put(request: pytest.FixtureRequest) -> Callable[[str, bytes], str]:
    """Puts a file into ``db`` on a server; the URL."""
    server = request.getfixturevalue(request.param)
    if request.param == "hdfs":
        return lambda name, content: str(server(f"view/{name}", content))

    def upload(name: str, content: bytes) -> str:
        import boto3

        boto3.client("s3").put_object(Bucket="blast", Key=f"view/{name}", Body=content)
        return f"{server}/view/{name}"

    return upload


def serial(folder: Path, *words: str) -> bytes:
    return subprocess.run(words, cwd=folder, check=True, capture_output=True).stdout


def test_blastp_in_a_view_writes_serial_bytes(put: Callable[[str, bytes], str], shell: Shell) -> None:
    """A view that is killed fails the tool; the run waits for a new one, and goes on in it by itself."""
    files = database(shell.work)
    url = [put(name, content) for name, content in files.items()][-1].rpartition("/")[0]
    point, cache = shell.root / "view", shell.root / "cache"
    wanted = serial(shell.work, "blastp", "-query", "q.faa", "-db", "nr", "-evalue", "1e-3", "-outfmt", "6")
    for path in shell.work.glob("nr.*"):
        path.unlink()
    held = 'case "$*" in */unread0*) ;; *-query*) echo x >> "$MARK/begun"; while [ ! -e "$MARK/go" ]; do sleep 0.05; done;; esac'
    shell.tool("blastp", f'{held}; exec {shutil.which("blastp")} "$@"')
    said = shell.root / "said"
    line = f"millrace run --stage off --batch 3 --retries 0 -- blastp -query q.faa -db {point}/nr -evalue 1e-3 -outfmt 6 -out hits 2> {said}"
    with mounted(url, point, cache) as view, ThreadPoolExecutor(1) as pool:
        running = pool.submit(shell.run, line)
        assert wait_until(lambda: (shell.root / "begun").exists() or running.done())
        view.kill()
        view.wait()
        (shell.root / "go").touch()
        waits = f"{point}: nobody serves what was mounted there any more; waiting"
        assert wait_until(lambda: waits in said.read_text() or running.done()), said.read_text()
        assert not running.done(), said.read_text()
        unmount(point)
        with mounted(url, point, cache):
            assert running.result().code == 0, said.read_text()
    assert (shell.work / "hits").read_bytes() == wanted
    assert f"{point}: is served again" in said.read_text() and "quarantined" not in said.read_text()


#: Of the calls for records two are let through; the next ones wait with what they have, for ``go``. What fails waits for
#: ``again``.
IN_STEPS = """
case "$*" in */unread0*) exec {real} "$@";; *-query*) ;; *) exec {real} "$@";; esac
hold() {{ until [ -e "$MARK/$1" ]; do sleep 0.05; done; }}
echo x >> "$MARK/begun"
{real} "$@"
code=$?
if [ $code != 0 ]; then echo x >> "$MARK/failed"; hold again; exit $code; fi
if [ $(wc -l < "$MARK/begun") -gt 2 ]; then hold go; fi
"""


#: Nobody waits for a view that is away.
IMPATIENT = "from millrace.node import node_limits; node_limits.MAX_ABSENCE_SECONDS = 0.0; from millrace.cli import main; main()"


@pytest.mark.slow
@pytest.mark.parametrize("comes_back", [True, again(False)])
def test_killed_view_quarantines_no_record(comes_back: bool, web: Web, shell: Shell) -> None:
    """What fails is tried again, in a new view where there is one by then; else the run ends, and goes on later.

    BLAST says that its database cannot be read, which elsewhere ends the run at once.
    """
    for name, content in database(shell.work).items():
        web.put(f"db/{name}", content)
    wanted = serial(shell.work, "blastp", "-query", "q.faa", "-db", "nr", "-evalue", "1e-3", "-outfmt", "6")
    point, cache, begun, failed = (shell.root / name for name in ("view", "cache", "begun", "failed"))
    shell.tool("blastp", IN_STEPS.format(real=shutil.which("blastp")))
    if not comes_back:
        shell.tool("millrace", f'exec {sys.executable} -c "{IMPATIENT}" "$@"')
    line = f"millrace run --as blastp --slots 2 --stage off --batch 3 -- blastp -query q.faa -db {point}/nr -evalue 1e-3 -outfmt 6 -out hits"
    with ThreadPoolExecutor(1) as pool, mounted(f"{web.url}/db", point, cache) as view:
        running = pool.submit(shell.run, line)
        try:
            assert wait_until(lambda: running.done() or (begun.exists() and begun.stat().st_size > 4))
            view.kill()
            view.wait()
            (shell.root / "go").touch()
            assert wait_until(lambda: failed.exists() or running.done())
            if comes_back:
                unmount(point)
                with mounted(f"{web.url}/db", point, cache):
                    assert not running.done(), running.result().shown
                    (shell.root / "again").touch()
                    running.result()
        finally:
            for name in ("go", "again"):
                (shell.root / name).touch()
        done = running.result()
    if not comes_back:
        assert done.code == 1 and f"{point}: nobody serves what was mounted there any more" in done.err, done.shown
        assert f"umount {point}, mount it anew and type the same command again" in done.err, done.shown
        with mounted(f"{web.url}/db", point, cache):
            done = shell.run(line)
    assert done.code == 0 and "quarantined" not in done.err, done.shown
    assert (shell.work / "hits").read_bytes() == wanted


def test_run_that_waits_for_a_view_can_be_interrupted(web: Web, shell: Shell) -> None:
    web.put("db/set", b"some bytes")
    point, cache, said = (shell.root / name for name in ("view", "cache", "said"))
    shell.tool("reads", 'until [ -e "$MARK/go" ]; do : > "$MARK/begun"; sleep 0.05; done; cat "$2" > "$3" && cat "$1"')
    options = f"--slots 2 --batch 1 --stage off --verify 0 --shared {point}/set --input in.fa"
    line = f"millrace run {options} -- reads in.fa {point}/set /dev/null > out 2> {said}"
    environ = {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)}
    with mounted(f"{web.url}/db", point, cache) as view, said.open("w") as stderr:
        words = line.partition(" > ")[0].split()
        with subprocess.Popen(words, cwd=shell.work, env=environ, stdout=subprocess.DEVNULL, stderr=stderr) as run:
            assert wait_until(lambda: (shell.root / "begun").exists() or run.poll() is not None)
            view.kill()
            view.wait()
            (shell.root / "go").touch()
            assert wait_until(lambda: "waiting 60 s at most" in said.read_text() or run.poll() is not None)
            run.send_signal(signal.SIGINT)
            assert run.wait() == 130 and "quarantined" not in said.read_text(), said.read_text()
    with mounted(f"{web.url}/db", point, cache):
        done = shell.run(line)
    assert done.code == 0 and (shell.work / "out").read_bytes() == (shell.work / "in.fa").read_bytes(), said.read_text()


@pytest.mark.parametrize("put", ["bucket", pytest.param("hdfs", marks=pytest.mark.slow)], indirect=True)
def test_hmmscan_in_a_view_writes_serial_bytes(put: Callable[[str, bytes], str], shell: Shell) -> None:
    if missing := [name for name in ("hmmscan", "hmmbuild", "hmmpress") if not shutil.which(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    chance = random.Random(5)
    entries = ["".join(chance.choices("ACDEFGHIKLMNPQRSTVWY", k=90)) for _ in range(3)]
    for k, entry in enumerate(entries):
        (shell.work / f"m{k}.afa").write_text(f">a\n{entry}\n>b\n{entry[:-2]}AA\n")
        serial(shell.work, "hmmbuild", "--amino", "-n", f"m{k}", f"m{k}.hmm", f"m{k}.afa")
    (shell.work / "all.hmm").write_bytes(b"".join((shell.work / f"m{k}.hmm").read_bytes() for k in range(3)))
    serial(shell.work, "hmmpress", "all.hmm")
    (shell.work / "q.faa").write_text("".join(f">q{k}\n{entries[k % 3][k:]}\n" for k in range(9)))
    wanted = serial(shell.work, "hmmscan", "--noali", "--tblout", "wanted", "all.hmm", "q.faa")
    names = sorted(path.name for path in shell.work.glob("all.hmm*"))
    url = [put(name, (shell.work / name).read_bytes()) for name in names][-1].rpartition("/")[0]
    point = shell.root / "view"
    with mounted(url, point, shell.root / "cache"):
        done = shell.run(f"millrace run --stage off --batch 2 -- hmmscan --noali --tblout hits {point}/all.hmm q.faa")
    assert done.code == 0, done.shown
    assert results(done.out.encode()) == results(wanted)
    assert results((shell.work / "hits").read_bytes()) == results((shell.work / "wanted").read_bytes())


def results(text: bytes) -> list[bytes]:
    """All but what names files and times."""
    return [line for line in text.splitlines() if not line.startswith(b"#")]
