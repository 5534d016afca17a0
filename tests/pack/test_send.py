"""`millrace send` over real ssh: a result is regenerated where it arrives, whoever is killed on the way."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sftp_server
from harness import wait_until
from tool_batches import need

from millrace.extensions.pack.layout import SectionKind, read_complete_sections
from millrace.host import file_lock, lock_owner

MILLRACE = [sys.executable, "-m", "millrace"]
COMMAND = "blastp -query q.faa -db prot -outfmt 6 -max_target_seqs 5 -out out"

#: Longest wait for an event, in seconds.
LONG = 240


def ask(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MILLRACE, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=540
    )


class Ends:
    """Two folders, one of which is reached by ssh, and has a ``millrace``."""

    def __init__(self, here: Path, there: Path, port: str) -> None:
        self.here, self.there = here, there
        program = there / "millrace"
        program.write_text(f'#!/bin/sh\nPATH={shlex.quote(os.environ["PATH"])} exec {shlex.join(MILLRACE)} "$@"\n')
        program.chmod(0o755)
        self.words = ["--ssh", f"ssh -p {port}", "--millrace", str(program), "--db", str(there / "prot")]
        self.result = there / "hits.txt"
        self.receiving = there / ".hits.txt.receiving"

    def send(self, source: str) -> list[str]:
        return [*MILLRACE, "send", source, f"127.0.0.1:{self.result}", *self.words]


@pytest.fixture
def ends(bench_of: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    if reason := sftp_server.reason_not():
        pytest.skip(reason)
    need("blastp")
    here, there, binaries, keys = (tmp_path / name for name in ("here", "there", "bin", "keys"))
    for folder in (here, there, binaries, keys):
        folder.mkdir()
    for path in bench_of.glob("prot.*"):
        (here / path.name).symlink_to(path)
        (there / path.name).symlink_to(path)
    (here / "q.faa").symlink_to(bench_of / "q.faa")
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    with sftp_server.serve(keys, binaries) as url:
        yield Ends(here, there, url.rpartition(":")[2])


def holding(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let ``blastp`` here wait from its twelfth call on, until this file is gone.

    Until there is a file ``seen``, each call waits for some seconds alone: what is waited for may need it.
    """
    hold, seen, calls, folder = (ends.here / name for name in ("hold", "seen", "calls", "bin"))
    hold.touch()
    calls.mkdir()
    folder.mkdir()
    (folder / "blastp").write_text(
        f"""#!/bin/sh
mktemp {calls}/XXXXXXXX >/dev/null
if [ "$(ls {calls} | wc -l)" -gt 12 ]; then
  n=0
  while [ -e {hold} ] && {{ [ -e {seen} ] || [ $n -lt 100 ]; }}; do sleep 0.2; n=$((n + 1)); done
fi
exec {need("blastp")} "$@"
"""
    )
    (folder / "blastp").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return hold


def has_hits(pack: Path) -> bool:
    size = pack.stat().st_size if pack.exists() else 0
    return size > 100 and any(section.kind is SectionKind.HITS for section in read_complete_sections(pack, size))


def ssh_of(sender: subprocess.Popen[bytes]) -> int:
    """The process that is the link."""
    children = Path(f"/proc/{sender.pid}/task/{sender.pid}/children").read_text().split()
    return int(children[0])


def receiver_of(ends: Ends) -> int:
    owner = lock_owner.read_owner(ends.receiving / "lock")
    assert owner
    return owner.pid


#: Who is killed, and when: each once, and the rest with ``-m slow``.
DEATHS = (("arrived", "receiver"), ("regenerated", "sender"), ("regenerated", "link"))
MORE_DEATHS = (("arrived", "sender"), ("regenerated", "receiver"), ("arrived", "link"))


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [DEATHS, pytest.param(MORE_DEATHS, marks=pytest.mark.slow)], ids=["each", "more"])
def test_result_is_sent_during_the_run_despite_kills(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, deaths: tuple[tuple[str, str], ...]
) -> None:
    subprocess.run(COMMAND.split(), cwd=ends.here, check=True)
    hold = holding(ends, monkeypatch)
    run = [*MILLRACE, "run", "--pack-to", "r.mrp", "--with-queries", "--batch", "2", "--", *COMMAND.split()]
    begun: list[subprocess.Popen[bytes]] = []
    words = ends.here / "words"

    def start(command: list[str]) -> subprocess.Popen[bytes]:
        with words.open("ab") as said:
            begun.append(subprocess.Popen(command, cwd=ends.here, stdin=subprocess.DEVNULL, stderr=said))
        return begun[-1]

    def connected() -> bool:
        return file_lock.is_held(ends.receiving / "lock")

    def is_named() -> bool:
        owner = lock_owner.read_owner(ends.receiving / "lock")
        return connected() and owner is not None and owner.is_alive_here()

    def arrived() -> bool:
        return has_hits(ends.receiving / "pack")

    def regenerated() -> bool:
        return (ends.receiving / "work/run/complete.json").exists()

    def killed(when: Callable[[], bool], victim: Callable[[subprocess.Popen[bytes]], int]) -> None:
        sender = start(ends.send("r.mrp"))
        assert wait_until(lambda: is_named() and when(), sender), words.read_text()
        assert sender.poll() is None, words.read_text()
        os.kill(victim(sender), signal.SIGKILL)
        assert sender.wait(LONG) != 0
        assert wait_until(lambda: not connected())
        assert not ends.result.exists()

    moments = {"arrived": arrived, "regenerated": regenerated}
    victims = {"receiver": lambda _: receiver_of(ends), "sender": lambda sender: sender.pid, "link": ssh_of}
    try:
        job = start(run)
        assert wait_until(lambda: has_hits(ends.here / ".r.mrp.packing/pack"), job), words.read_text()
        (ends.here / "seen").touch()
        for moment, victim in deaths:
            killed(moments[moment], victims[victim])
        sender = start(ends.send("r.mrp"))
        hold.unlink()
        assert job.wait(LONG) == 0, words.read_text()
        assert sender.wait(LONG) == 0, words.read_text()
    finally:
        for process in begun:
            process.kill()
            process.wait()
    assert ends.result.read_bytes() == (ends.here / "out").read_bytes()
    assert not ends.receiving.exists()


@pytest.mark.slow
def test_a_kept_run_is_sent(ends: Ends) -> None:
    assert ask(ends.here, "run", "--keep-run-dir", "--", *COMMAND.split()).returncode == 0
    told = subprocess.run(ends.send("out.millrace"), cwd=ends.here, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert told.stderr.count("this pack runs: blastp ") == 1, told.stderr
    assert ends.result.read_bytes() == (ends.here / "out").read_bytes()
    assert sorted(path.name for path in ends.here.iterdir() if not path.is_symlink()) == ["out", "out.millrace"]
    # What cannot be regenerated there is said here.
    told = subprocess.run([*ends.send("out.millrace")[:-1], "nowhere"], cwd=ends.here, capture_output=True, text=True)
    assert told.returncode == 2, told.stderr
    assert "nowhere" in told.stderr


@pytest.mark.slow
def test_sent_result_is_that_of_the_current_run_directory(ends: Ends) -> None:
    """A first `send` found no connection; then another command was run into the same directory."""
    run = ["run", "--fresh", "--keep-run-dir", "--", *COMMAND.split()]
    assert ask(ends.here, *run).returncode == 0
    told = subprocess.run([*ends.send("out.millrace"), "--ssh", "false"], cwd=ends.here, capture_output=True, text=True)
    assert told.returncode == 1, told.stderr
    first = (ends.here / "out").read_bytes()
    assert ask(ends.here, *run, "-evalue", "1e-30").returncode == 0
    told = subprocess.run(ends.send("out.millrace"), cwd=ends.here, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert ends.result.read_bytes() == (ends.here / "out").read_bytes() != first
    assert sorted(path.name for path in ends.here.iterdir() if not path.is_symlink()) == ["out", "out.millrace"]


def test_unsendable_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.mrp").write_bytes(b"")
    for words, arguments in (
        ("no such file", ["none.mrp", "host:out"]),
        ("no place", ["r.mrp", "-oProxyCommand=x:out"]),
        ("no place", ["r.mrp", "host"]),
        ("names the machine again", ["r.mrp", "me@host:out", "me@host:table"]),
        ("no such file", ["r.mrp", "host:out", "--ssh", "/none/ssh"]),
    ):
        options = arguments[2:] if "--ssh" in arguments else []
        told = ask(tmp_path, "send", *options, "--", *arguments[: len(arguments) - len(options)])
        assert told.returncode == 2, told.stderr
        assert words in told.stderr.lower()


@pytest.mark.slow
def test_receiving_in_user_space_leaves_no_folder(ends: Ends) -> None:
    """Such a filesystem keeps a file that is removed while it is open, under another name in its folder."""
    ssh = [*ends.words[1].split(), "127.0.0.1"]
    packed = ask(ends.here, "run", "--pack-to", "r.mrp", "--with-queries", "--", *COMMAND.split())
    assert packed.returncode == 0, packed.stderr
    there = shlex.quote(str(ends.there))
    line = f"bindfs {there} {there} >/dev/null 2>&1 </dev/null; stat -f -c %T {there}"
    mounted = subprocess.run([*ssh, line], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LONG)
    if not mounted.stdout.startswith("fuse"):
        pytest.skip(f"no filesystem in user space can be mounted: {mounted.stdout} {mounted.stderr}")
    try:
        sent = subprocess.run(ends.send("r.mrp"), cwd=ends.here, capture_output=True, text=True, timeout=LONG)
        assert sent.returncode == 0, sent.stderr
    finally:
        subprocess.run([*ssh, f"umount {there}"], check=True, stdin=subprocess.DEVNULL, timeout=LONG)
    assert ends.result.stat().st_size > 0
    assert [path.name for path in ends.there.glob(".*")] == []


def test_plan_before_the_search_finds_the_crossover(bench_of: Path, tmp_path: Path) -> None:
    for name in ("q3.faa", *(path.name for path in bench_of.glob("prot.*"))):
        (tmp_path / name).symlink_to(bench_of / name)
    command = ["blastp", "-query", "q3.faa", "-db", "prot", "-evalue", "1e-3", "-outfmt", "0", "-out", "out"]

    def plan(*options: str) -> str:
        told = ask(tmp_path, "send", "--plan", *options, "--", *command)
        assert told.returncode == 0, told.stderr
        return told.stdout

    # A link that is slower than all these cores, and one that is faster than a single core that is slow.
    slow = plan("--bandwidth", "1K", "--cores", "1000")
    assert "best: packed\n" in slow and "packed is sooner than zstd below" in slow
    assert "packed is sooner than zstd piped below" in slow
    fast = plan("--bandwidth", "100G", "--cores", "1000", "--cores-there", "1", "--speed-there", "0.1")
    assert "packing does not pay at 100G" in fast
    assert [path.name for path in tmp_path.iterdir() if not path.is_symlink()] == []
    for words, arguments in (("--bandwidth", ["--plan", "--", *command]), ("what to send", ["--slots", "1"])):
        told = ask(tmp_path, "send", *arguments)
        assert (told.returncode, words in told.stderr) == (2, True), told.stderr
