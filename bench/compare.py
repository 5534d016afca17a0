"""Contenders side by side: interleaved repeats, peers tuned first, outputs compared with the serial run's."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import measure, table


@dataclass(frozen=True)
class Contender:
    """One way to do the work.

    ``command`` is for the shell and writes ``out``, a file or a folder. Of several contenders of one
    ``family`` the fastest in one trial takes part.
    """

    name: str
    command: str
    family: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    #: Files to make before each run, not counted.
    prepare: Callable[[Path], None] | None = None


@dataclass
class Case:
    """One job and everybody who does it; the first contender is Millrace, the second the serial run."""

    name: str
    what: str
    folder: Path
    contenders: list[Contender]
    out: str = "out"
    #: Regular expression (bytes, multi-line) of what differs between two serial runs.
    volatile: bytes = b""


def compare(case: Case, repeats: int, *, watch: bool = False) -> dict[str, Any]:
    """Run a case; prints the table and returns all figures."""
    print(f"\n## {case.name}: {case.what}\n", flush=True)
    contenders = [*case.contenders[:2], *_tuned(case)]
    series = {contender.name: measure.Series() for contender in contenders}
    digests: dict[str, str] = {}
    for repeat in range(repeats):
        # Everybody comes first once, so that nobody always follows the same neighbour.
        shift = repeat % len(contenders)
        for contender in contenders[shift:] + contenders[:shift]:
            series[contender.name].runs.append(_run(case, contender, watch))
            digests[contender.name] = digest(case)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    serial = digests[contenders[1].name]
    rows = [
        _row(
            contender.name,
            series[contender.name],
            series[contenders[0].name],
            digests[contender.name] == serial,
        )
        for contender in contenders
    ]
    print(table.text(rows))
    verdict = judge(rows)
    print(f"\n{verdict}", flush=True)
    return {"case": case.name, "what": case.what, "rows": rows, "verdict": verdict,
            "commands": {contender.name: contender.command for contender in contenders}}  # fmt: skip


def _tuned(case: Case) -> list[Contender]:
    """Peers in order; of each family the one that was fastest in a single run."""
    chosen: list[Contender] = []
    families: dict[str, list[Contender]] = {}
    for contender in case.contenders[2:]:
        families.setdefault(contender.family or contender.name, []).append(contender)
    for members in families.values():
        if len(members) == 1:
            chosen += members
            continue
        trials = {member.name: _run(case, member, False).wall for member in members}
        print(f"trials: {', '.join(f'{name} {wall:.2f} s' for name, wall in trials.items())}", flush=True)
        chosen.append(min(members, key=lambda member: trials[member.name]))
    return chosen


def _run(case: Case, contender: Contender, watch: bool) -> measure.Run:
    _remove(case.folder / case.out)
    if contender.prepare:
        contender.prepare(case.folder)
    return measure.run(contender.command, case.folder, contender.environ, watch=watch)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def digest(case: Case) -> str:
    """Digest of a case's output without what differs between two serial runs; of a folder with its names."""
    out = case.folder / case.out
    found = hashlib.blake2b(digest_size=16)
    for path in sorted(out.iterdir()) if out.is_dir() else [out]:
        if out.is_dir():
            found.update(path.name.encode() + b"\0")
        if case.volatile:
            found.update(re.sub(case.volatile, b"", path.read_bytes(), flags=re.MULTILINE))
            continue
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    return found.hexdigest()


def _row(name: str, series: measure.Series, millrace: measure.Series, same: bool) -> dict[str, Any]:
    return {
        "name": name, "wall": series.median, "best": series.best, "cpu": series.cpu, "spread": series.spread,
        "wall_ratio": series.median / millrace.median, "best_ratio": series.best / millrace.best,
        "cpu_ratio": series.cpu / millrace.cpu, "same": same,
        "peak_bytes": max(run.peak_bytes for run in series.runs),
        "runs": [{"wall": run.wall, "cpu": run.cpu} for run in series.runs],
    }  # fmt: skip


def judge(rows: Sequence[dict[str, Any]]) -> str:
    """Say whether Millrace is fastest, or within the noise of the fastest, and its CPU at most that of the fastest.

    The CPU of the thriftiest peer is told, and not judged: where cores are hyper-threads, a second costs less beside an
    idle sibling, so that a peer which leaves cores idle looks thrifty.
    """
    millrace, peers = rows[0], rows[2:] or rows[1:]
    fastest = min(peers, key=lambda row: float(row["wall"]))
    thriftiest = min(peers, key=lambda row: float(row["cpu"]))
    noise = max(millrace["spread"], fastest["spread"], 0.02)
    wall = millrace["wall"] / fastest["wall"]
    cpu, least = millrace["cpu"] / fastest["cpu"], millrace["cpu"] / thriftiest["cpu"]
    words = [
        f"wall {wall:.3f} of the best peer ({fastest['name']}, noise {noise:.0%}): {_met(wall <= 1 + noise)}",
        f"CPU {cpu:.3f} of that peer: {_met(cpu <= 1.02)}; {least:.3f} of the thriftiest ({thriftiest['name']})",
        f"bytes: {'serial' if millrace['same'] else 'NOT THE SERIAL RUN'}",
    ]
    return "; ".join(words)


def _met(good: bool) -> str:
    return "met" if good else "MISSED"
