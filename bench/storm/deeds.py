"""Kills, and what somebody else does while a run lasts."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.storm.scenario import Deed, Moment
from bench.storm.site import DATABASES, Site

sys.path[:0] = [str(Path(__file__).resolve().parent.parent.parent / "tests" / "support")]

import harness  # noqa: E402


@dataclass
class Done:
    """What was done while a start lasted."""

    deeds: list[Deed] = field(default_factory=list)
    #: Processes that were started beside.
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)
    #: Whether somebody touched an output that may have been looked at for the last time.
    late: bool = False

    def any(self, *words: str) -> bool:
        return any(deed.what.startswith(words) for deed in self.deeds)

    def signals(self) -> set[int]:
        """Signals that Millrace itself may have got."""
        found = {getattr(signal, f"SIG{deed.signal}") for deed in self.deeds if deed.what in ("millrace", "group")}
        return {int(each) for each in found}


class Strikes:
    """Does the deeds of one start, each when its moment comes, in threads of their own."""

    def __init__(self, site: Site, process: subprocess.Popen[bytes], deeds: tuple[Deed, ...]) -> None:
        self.site, self.process, self.done = site, process, Done()
        self._ended, self._freed = threading.Event(), threading.Event()
        self._changing = threading.Lock()
        self._errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._do, args=(deed,), daemon=True) for deed in deeds]
        self._freer = threading.Thread(target=self._free_the_hung, daemon=True)
        for thread in (*self._threads, self._freer):
            thread.start()

    def close(self) -> Done:
        """The start has ended; what was done."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return self.done

    def close_all(self) -> None:
        """Those beside have ended, too: no tool is left that may hang."""
        self._freed.set()
        self._freer.join()

    def _do(self, deed: Deed) -> None:
        try:
            if self._wait(deed.moment):
                self._strike(deed)
        except (OSError, StopIteration, EOFError):
            pass  # there is nothing any more, or not yet
        except Exception as error:
            self._errors.append(error)

    def _strike(self, deed: Deed) -> None:
        if not deed.signal:
            with self._changing:
                self.done.deeds.append(deed)
                ACTS[deed.what](self, random.Random(deed.dice))
        elif self._kill(deed):
            self.done.deeds.append(deed)

    def _wait(self, moment: Moment) -> bool:
        """Wait for a moment; False: the start came to its end before."""
        site, had = self.site, False
        total = site.whole_bytes

        def seen() -> bool:
            nonlocal had
            run_dir = site.run_dir
            had = had or run_dir is not None
            match moment.after:
                case "the first result":
                    return run_dir is not None and bool(harness.size(run_dir / "journal.mrj") > 200)
                case "the last result":
                    return bool(harness.size(site.output) >= total)
                case "the end":
                    return had and (run_dir is None or (run_dir / "complete.json").exists())
                case _:
                    return True

        while not seen():
            if self._ended.wait(0.004):
                return False
        return not self._ended.wait(moment.seconds)

    def _free_the_hung(self) -> None:
        """End a tool that hangs."""
        note = self.site.state / "hung"
        while not self._freed.wait(0.02):
            with contextlib.suppress(OSError, ValueError):
                pid = int(note.read_text())
                if not self._freed.wait(0.2):
                    os.kill(pid, signal.SIGKILL)
                note.unlink()

    def _kill(self, deed: Deed) -> bool:
        pid, number = self.process.pid, getattr(signal, f"SIG{deed.signal}")
        if deed.what == "millrace":
            os.kill(pid, number)
            return True
        if deed.what == "group":
            os.killpg(pid, number)
            return True
        tools = harness.tools(pid)
        children = [child for child, _ in harness.children(pid)]
        if deed.what == "watchdog":
            children = [child for child, name in harness.children(pid) if name == "millrace-watch"]
        found = tools if deed.what == "tool" else [child for child in children if child not in tools]
        if not found:
            return False
        os.kill(random.Random(deed.dice).choice(found), number)
        return True


# What somebody else does


def _input(change: Callable[[Path, random.Random], None]) -> Callable[[Strikes, random.Random], None]:
    def act(strikes: Strikes, dice: random.Random) -> None:
        site = strikes.site
        path = dice.choice(site.inputs_kept)
        before = site.now
        change(path, dice)
        site.reread()
        if site.now == before:
            site.history.pop()

    return act


def somewhere(path: Path, dice: random.Random) -> int:
    """A place in a file.

    Raises:
        EOFError: It is empty.
    """
    if not (size := path.stat().st_size):
        raise EOFError
    return dice.randrange(size)


def _cut(path: Path, dice: random.Random) -> None:
    os.truncate(path, somewhere(path, dice))


def _go_on(path: Path, _: random.Random) -> None:
    with path.open("ab") as file:
        file.write(b">r98\nMKVMKV\n")


def _replace(path: Path, _: random.Random) -> None:
    fresh = path.with_name("fresh")
    fresh.write_bytes(path.read_bytes().replace(b"MKV", b"MKVMKV"))
    shutil.copystat(path, fresh)
    fresh.rename(path)


def _replace_database(strikes: Strikes, _: random.Random) -> None:
    site = strikes.site
    fresh = site.work / "fresh"
    fresh.write_text(DATABASES[1])
    site.becomes(database=DATABASES[1])
    fresh.rename(site.work / "db")


def _write_database(strikes: Strikes, _: random.Random) -> None:
    site = strikes.site
    with (site.work / "db").open("r+") as file:
        site.becomes(database=DATABASES[1])
        file.write(DATABASES[1])


def _there_and_back(strikes: Strikes, _: random.Random) -> None:
    site = strikes.site
    os.link(site.work / "db", site.root / "disk" / "real")
    before = site.now.database
    _replace_database(strikes, _)
    time.sleep(0.15)
    site.becomes(database=before)
    (site.root / "disk" / "real").rename(site.work / "db")


def _replace_tool(strikes: Strikes, _: random.Random) -> None:
    site = strikes.site
    fresh = site.work / "fresh"
    fresh.write_text(site.tool.read_text().replace("# version v1", "# version v2"))
    fresh.chmod(0o755)
    site.becomes(version="v2")
    fresh.rename(site.tool)


def _output(change: Callable[[Path, random.Random], None]) -> Callable[[Strikes, random.Random], None]:
    def act(strikes: Strikes, dice: random.Random) -> None:
        site = strikes.site
        if site.scenario.layout == "stdout":
            return
        strikes.done.late = strikes.done.late or harness.size(site.output) >= site.whole_bytes
        change(site.output, dice)

    return act


def _move_away(path: Path, _: random.Random) -> None:
    path.rename(path.with_name("moved.txt"))


def _write_over(path: Path, dice: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(dice.randrange(path.stat().st_size + 1))
        file.write(b"somebody else\n")


def _append(path: Path, _: random.Random) -> None:
    with path.open("ab") as file:
        file.write(b"somebody else\n")


def _make_folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _in_run_dir(change: Callable[[Path, random.Random], object]) -> Callable[[Strikes, random.Random], None]:
    def act(strikes: Strikes, dice: random.Random) -> None:
        if run_dir := strikes.site.run_dir:
            change(run_dir, dice)

    return act


def _spoil(name: str) -> Callable[[Path, random.Random], None]:
    def change(run_dir: Path, dice: random.Random) -> None:
        path = next(run_dir.glob(name))
        with path.open("r+b") as file:
            at = somewhere(path, dice)
            file.seek(at)
            old = file.read(1)[0]
            file.seek(at)
            file.write(bytes([old ^ 1 << dice.randrange(8)]))

    return change


def _fold(name: str) -> Callable[[Path, random.Random], None]:
    def change(run_dir: Path, _: random.Random) -> None:
        (run_dir / name).unlink(missing_ok=True)
        (run_dir / name).mkdir()

    return change


def _cut_journal(run_dir: Path, dice: random.Random) -> None:
    path = next(run_dir.glob("journal*.mrj"))
    os.truncate(path, somewhere(path, dice))


def _fill(folder: Callable[[Site], Path]) -> Callable[[Strikes, random.Random], None]:
    def act(strikes: Strikes, dice: random.Random) -> None:
        if not strikes.site.mounted:
            return
        path = folder(strikes.site) / "filler"
        try:
            with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            time.sleep(dice.uniform(0.1, 0.6))
        finally:
            path.unlink(missing_ok=True)

    return act


def _freeze(pids: Callable[[int], list[int]]) -> Callable[[Strikes, random.Random], None]:
    def act(strikes: Strikes, dice: random.Random) -> None:
        pid = dice.choice(pids(strikes.process.pid) or [strikes.process.pid])
        os.kill(pid, signal.SIGSTOP)
        time.sleep(dice.uniform(0.05, 0.8))
        os.kill(pid, signal.SIGCONT)

    return act


def _start_another(strikes: Strikes, _: random.Random) -> None:
    strikes.done.others.append(strikes.site.start(stdout="other.txt"))


ACTS: dict[str, Callable[[Strikes, random.Random], None]] = {
    "input cut": _input(_cut),
    "input goes on": _input(_go_on),
    "input replaced": _input(_replace),
    "input touched": _input(lambda path, _: os.utime(path)),
    "input removed": _input(lambda path, _: path.unlink()),
    "database replaced": _replace_database,
    "database written over": _write_database,
    "database there and back": _there_and_back,
    "tool replaced": _replace_tool,
    "output removed": _output(lambda path, _: path.unlink()),
    "output moved": _output(_move_away),
    "output cut": _output(_cut),
    "output written over": _output(_write_over),
    "output goes on": _output(_append),
    "output a folder": _output(_make_folder),
    "job.json spoilt": _in_run_dir(_spoil("job.json")),
    "journal spoilt": _in_run_dir(_spoil("journal*.mrj")),
    "journal cut": _in_run_dir(_cut_journal),
    "journal goes on": _in_run_dir(lambda run_dir, _: _append(next(run_dir.glob("journal*.mrj")), _)),
    "events spoilt": _in_run_dir(_spoil("events.jsonl")),
    "events a folder": _in_run_dir(_fold("events.jsonl")),
    "lock removed": _in_run_dir(lambda run_dir, _: (run_dir / "lock").unlink()),
    "lock a folder": _in_run_dir(_fold("lock")),
    "complete.json made": _in_run_dir(lambda run_dir, _: (run_dir / "complete.json").write_text("{}\n")),
    "quarantine a file": _in_run_dir(lambda run_dir, _: (run_dir / "quarantine").write_text("no folder\n")),
    "run directory removed": _in_run_dir(lambda run_dir, _: shutil.rmtree(run_dir, ignore_errors=True)),
    "run directory moved": _in_run_dir(lambda run_dir, _: run_dir.rename(run_dir.with_name("moved.dir"))),
    "another start": _start_another,
    "work area full": _fill(lambda site: site.area),
    "disk full": _fill(lambda site: site.disk),
    "millrace frozen": _freeze(lambda pid: [pid]),
    "tool frozen": _freeze(harness.tools),
}
