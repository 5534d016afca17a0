"""Runs a scenario to its end, and says what was wrong."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.storm import tools
from bench.storm.deeds import Done, Strikes
from bench.storm.scenario import OUTPUTS, RUN_DIRS, Scenario
from bench.storm.site import Site
from millrace.core.errors import ExitCode

#: Seconds after which a start hangs, and what is left is left over.
HANGS, LEFT = 240.0, 60.0

#: Undisturbed starts that a scenario may need until it is done.
CALM = 6


@dataclass
class Seen:
    """How one start ended."""

    code: int
    said: str
    done: Done
    words: str = ""

    def __str__(self) -> str:
        deeds = ", ".join(f"{deed.signal and f'SIG{deed.signal} '}{deed.what}" for deed in self.done.deeds)
        return f"{self.words}[{deeds}] -> {self.code}: {self.said.strip()[:1500]}"


@dataclass
class Outcome:
    """A scenario and what became of it."""

    scenario: Scenario
    seen: list[Seen] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def codes(self) -> list[int]:
        return [seen.code for seen in self.seen]


class Judge:
    """Runs one scenario."""

    def __init__(self, scenario: Scenario, root: Path, *, mounted: bool) -> None:
        self.scenario = scenario
        self.site = Site(scenario, root, mounted)
        self.outcome = Outcome(scenario)
        self.more: tuple[str, ...] = ()
        #: Whether a run has begun in a world that is not there any more.
        self._stayed = False

    def run(self) -> Outcome:
        """Run it."""
        begun = time.monotonic()
        try:
            for deeds in self.scenario.starts:
                self._once(deeds)
                self._mend(leave=self.scenario.seed % 3 == 0)
            self._calm()
        except Exception as error:
            self._problem(f"the bench itself failed: {error!r}")
        finally:
            self.site.close()
        self.outcome.seconds = time.monotonic() - begun
        return self.outcome

    def _calm(self) -> None:
        """Start undisturbed until it is done."""
        for _ in range(CALM):
            seen = self._once(())
            if seen.code == 0 or (seen.code == 3 and self._quarantined() == frozenset(self._cannot())):
                if left := self.site.strangers(
                    complete=seen.code == 0 and "--keep-run-dir" not in self.scenario.options
                ):
                    self._problem(f"left in the folder: {left}")
                return
            before = self.more
            self._mend(leave=False)
            if self.more == before == () and seen.code not in (3,) and not self._remedied:
                self._problem("an undisturbed start after an undisturbed start fails")
                return
        self._problem("it does not come to its end")

    # One start

    def _once(self, deeds: tuple[object, ...]) -> Seen:
        begun = time.monotonic()
        process = self.site.start(*self.more)
        words = "".join(f"{word} " for word in self.more)
        self.more = ()
        strikes = Strikes(self.site, process, deeds)  # type: ignore[arg-type]
        code, hung = _wait(process)
        done = strikes.close()
        seen = Seen(code, _said(process), done, words)
        self.outcome.seen.append(seen)
        if hung:
            self._problem("hangs")
        replaced = False
        for other in done.others:
            other_code, hung = _wait(other)
            # It began when the first had ended, took the output over, and was stopped: what is there is its own.
            replaced = replaced or other_code not in (0, ExitCode.REFUSED)
            beside = Seen(other_code, _said(other), Done(deeds=done.deeds), "beside: ")
            self.outcome.seen.append(beside)
            if hung:
                self._problem("the start beside hangs")
            self._judge_words(beside)
        strikes.close_all()
        self._judge_words(seen)
        if replaced:
            pass
        elif code == 0:
            self._judge_bytes(begun, frozenset(), seen)
        elif code == 3:
            # Somebody may have removed the run directory since.
            self._judge_bytes(begun, self._quarantined() or _named(seen.said), seen)
        self._judge_left(done)
        return seen

    def _judge_words(self, seen: Seen) -> None:
        code, said = seen.code, seen.said
        if "KeyboardInterrupt" in said and "/millrace/" not in said and 2 in seen.done.signals():
            return  # Python itself had not yet come to a line of ours
        if "Traceback (most recent" in said or "panicked" in said:
            self._problem(f"a traceback: {said[-3000:]}")
        if code < 0:
            if -code not in seen.done.signals():
                self._problem(f"ended by signal {-code}, which nobody sent")
            return
        if code > 128:
            sent = seen.done.signals()
            if code - 128 not in sent and not (code == 143 and signal.SIGUSR1 in sent):
                self._problem(f"exit code {code}, but nobody sent such a signal")
            return
        if code not in range(6):
            self._problem(f"exit code {code} is not documented")
        if code and "millrace: " not in said:
            self._problem(f"exit code {code} without a word")
        if code and not self._may_fail(seen):
            self._problem(f"exit code {code} without a cause")

    def _may_fail(self, seen: Seen) -> bool:
        done, code, tool = seen.done, seen.code, self.scenario.tool
        if code == 3:
            return tool in tools.CANNOT or "once" in tool or done.any("tool", "helpers")
        if tool == "writes a file of the user's" and code == 4:
            return True
        return bool(self._causes)

    @property
    def _causes(self) -> list[str]:
        """What may still be the cause of a failure: all that was done since the last start that went well."""
        found: list[str] = []
        for seen in self.outcome.seen:
            if seen.code == 0 and "beside" not in seen.words:
                found = []
            found += [deed.what for deed in seen.done.deeds if not deed.signal or deed.what in ("watchdog", "helpers")]
        return [what for what in found if what not in ("millrace frozen", "tool frozen")]

    def _judge_bytes(self, begun: float, without: frozenset[str], seen: Seen) -> None:
        written, done = self.site.written(), seen.done
        allowed = [self.site.expected(world, without) for world in self.site.since(begun)]
        if written in allowed:
            return
        if self.site.output.is_dir() and f"{self.site.output.name}: Is a directory" in seen.said:
            # It was one before the start, which says that files come there: the serial tool can write nothing either.
            self.site.remove(self.site.output)
            return
        if done.late and done.any(*OUTPUTS):
            # Who writes into an output that is done is not Millrace's. A run that was kept finds what is gone.
            self.site.remove(self.site.output)
            return
        sizes = {name: len(content) for name, content in written.items()}
        wanted = [{name: len(each[name]) for name in each} if each else each for each in allowed]
        self._problem(
            f"not the serial bytes: {sizes} for one of {wanted}, without {sorted(without)}; {_first(written, allowed)}"
        )

    def _judge_left(self, done: Done) -> None:
        deadline = time.monotonic() + LEFT
        swept = not any(deed.signal and deed.what in ("watchdog", "helpers", "group") for deed in done.deeds)
        while left := [*self.site.processes(), *(self._areas() if swept else [])]:
            if time.monotonic() > deadline:
                self._problem(f"left over: {left}")
                return
            time.sleep(0.01)

    def _areas(self) -> list[str]:
        return [path.name for path in self.site.area.iterdir()] if self.scenario.own_area else []

    # Between two starts

    def _mend(self, *, leave: bool) -> None:
        """Take the causes of a failure away, as its message says.

        Args:
            leave: The world may stay as it is now, where ``--fresh`` is another way.
        """
        seen = next(each for each in reversed(self.outcome.seen) if "beside" not in each.words)
        self._remedied = False
        fresh = "--fresh" in seen.said
        if seen.code == 4 and "scratch" in seen.said:
            (self.site.work / "scratch").unlink(missing_ok=True)
            self._remedied = True
        if changed := re.search(r"(?<!\S)(\S+): somebody has changed it since", seen.said):
            self.site.remove(self.site.work / changed[1])
            self._remedied = True
        if seen.code == 3 and self._quarantined() != frozenset(self._cannot()):
            self.more = ("--retry-quarantined",)
        if seen.code in (2, 5) and fresh:
            otherwise = "begun otherwise" in seen.said or (self._stayed and "not what they were" in seen.said)
            spoilt = any(what in RUN_DIRS for what in self._causes)
            if spoilt or otherwise or (leave and self.site.now.content):
                self.more = ("--fresh",)
                if not (leave and self.site.now.content):
                    self.site.restore()
                elif self.site.output.is_dir():  # in which no tool can write its file
                    self.site.remove(self.site.output)
                return
        if leave and seen.code == 0 and self.site.now.content:
            self._stayed = True
            return  # goes on in the world that is
        self.site.restore()
        lock = self.site.run_dir and self.site.run_dir / "lock"
        if lock and lock.is_dir() and not fresh:
            lock.rmdir()

    def _cannot(self) -> list[str]:
        here = tools.names(self.site.now.content or b"")
        return [name for name in tools.CANNOT.get(self.scenario.tool, ()) if name in here]

    def _quarantined(self) -> frozenset[str]:
        """Names of the records that were put aside."""
        run_dir = self.site.run_dir
        found = run_dir.glob("quarantine/**/record-*") if run_dir else ()
        here = tools.names(self.site.now.content or b"")
        if self.scenario.layout == "folder":  # a record is a file, into which somebody may have written one more
            here = [path.stem for path in self.site.inputs]
        numbers = [int(re.sub(r"\D", "", path.name)) for path in found]
        return frozenset(here[number - 1] for number in numbers if number <= len(here))

    def _problem(self, words: str) -> None:
        self.outcome.problems.append(words)


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, bool]:
    """(exit code, whether it hung)."""
    try:
        return process.wait(HANGS), False
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(), True


def _said(process: subprocess.Popen[bytes]) -> str:
    return str(process.said.read_bytes().decode(errors="replace"))  # type: ignore[attr-defined]


def _named(said: str) -> frozenset[str]:
    """Names of the records that a start said it has put aside."""
    return frozenset(re.findall(r"quarantined +record \d+ \((\S+)\)", said)) | frozenset(
        re.findall(r"^ +record \d+ \((\S+)\)", said, re.MULTILINE)
    )


def _first(written: dict[str, bytes], allowed: list[dict[str, bytes] | None]) -> str:
    """Where an output begins to differ from what it should be."""
    for name, content in written.items():
        for wanted in allowed[:1]:
            rows = (wanted or {}).get(name, b"").split(b"\n")
            for number, line in enumerate(content.split(b"\n")):
                if number >= len(rows) or rows[number] != line:
                    return f"{name} line {number + 1}: {line[:60]!r}, not {rows[number : number + 1]!r:.80}"
    return "cut short"
