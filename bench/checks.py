"""``python -m bench.checks``: what it costs to look whether inputs, databases, program, outputs and folders are what they should be.

Two figures, both CPU seconds as a share of all that the job takes, so that other work on the machine does not change them. *Checks*:
the functions that look, counted while a job runs. *Before* and *now* (``--before PYTHON``, of an environment with an older Millrace):
all that Millrace's own process takes, without its tools, in turn; the difference is everything that was added since, so it is
an upper bound that counts what the slots do in Rust, too. *Wall* is the median of the ratios of each run to the older one beside it;
that needs a quiet machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import measure, table
from bench.compare import Case
from bench.tools import CASES

#: What looks at the world, and what keeps others out.
CHECKS = (
    "millrace.planning.dependency_files:stat_run_files", "millrace.planning.dependency_files:stat_program_files", "millrace.planning.dependency_files:digest_file_states",
    "millrace.output.commits:ChangeGuard.check_unchanged", "millrace.output.commits:GuardedWriter.add_task", "millrace.output.commits:GuardedWriter.write_checked_tasks",
    "millrace.node.batch_files:find_changed_files", "millrace.output.output_streams:OutputStreams.find_changed_outputs", "millrace.output.saved_outputs:check_saved_outputs",
    "millrace.output.saved_outputs:save_output_states", "millrace.rundir.ownership:find_foreign_entry", "millrace.planning.run_dir_access:compute_run_dir_mode",
    "millrace.host.permissions:find_ownership_problem", "millrace.host.permissions:find_replacement_risk", "millrace.host.permissions:is_own_folder", "millrace.host.permissions:open_private_folder",
    "millrace.host.file_lock:acquire_lock", "millrace.host.file_lock:FileLock.is_ours", "millrace.rundir.checksummed_json:encode_checksummed", "millrace.rundir.checksummed_json:read_checksummed",
    "millrace.host.work_places:check_work_place", "millrace.node.work_dir:sweep_dead_runs", "millrace.node.node_limits:MemoryLimiter.adapt_slots",
    "millrace.host.file_lock:find_filesystem_kind", "millrace.scheduler.verification:OutputVerification.add_batch", "millrace.execution.output_verifier:OutputVerifier.add_committed",
)  # fmt: skip

RUNNER = Path(__file__).with_name("own_cpu.py")


@dataclass(frozen=True)
class Took:
    """What one run took, in seconds.

    Args:
        wall: From its start to its end.
        everything: CPU of Millrace, its tools, and all that these have started.
        own: Of that, Millrace's own process.
        checks: Of that, what `CHECKS` took.
        n_looks: Calls of them.
    """

    wall: float
    everything: float
    own: float
    checks: float
    n_looks: int


def run(python: str, case: Case, checks: tuple[str, ...]) -> tuple[Took, str]:
    """Run the job of ``case`` once; what it took, and a digest of what it wrote."""
    job = case.contenders[0]
    if job.prepare:
        job.prepare(case.folder)
    result = case.folder / "own.json"
    told = measure.run(f"exec {python} {RUNNER} {result} {' '.join(checks)} -- {job.command}", case.folder)
    told_own = json.loads(result.read_text())
    counted = told_own["checks"].values()
    took = Took(
        told.wall, told.cpu, told_own["own"], sum(seconds for _, seconds in counted), sum(int(n) for n, _ in counted)
    )
    return took, taken(case)


def taken(case: Case) -> str:
    """A digest of the output, which goes."""
    out = case.folder / case.out
    digest = hashlib.sha256()
    for path in sorted(out.iterdir()) if out.is_dir() else [out]:
        digest.update(
            re.sub(case.volatile, b"", path.read_bytes(), flags=re.MULTILINE) if case.volatile else path.read_bytes()
        )
        path.unlink()
    if out.is_dir():
        out.rmdir()
    return digest.hexdigest()


def row(name: str, now: list[Took], before: list[Took]) -> tuple[str, ...]:
    """A line of the table: medians."""

    def share(seconds: float) -> str:
        return f"{seconds / median(took.everything for took in now):.2%}"

    own = median(took.own for took in now)
    cells = [
        name, f"{median(took.everything for took in now):.2f}", f"{own:.3f}", f"{median(took.n_looks for took in now):.0f}",
        f"{1000 * median(took.checks for took in now):.1f}", share(median(took.checks for took in now)),
    ]  # fmt: skip
    if before:
        more = median(ours.own - theirs.own for ours, theirs in zip(now, before, strict=True))
        wall = median(ours.wall / theirs.wall for ours, theirs in zip(now, before, strict=True))
        cells += [f"{median(took.own for took in before):.3f}", f"{more:+.3f}", share(more), f"{wall:.3f}"]
    return tuple(cells)


def main() -> int:
    """Measure; prints a table. The exit code says whether bytes differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*CASES, []], help="jobs (all)")
    parser.add_argument("--before", metavar="PYTHON", help="of an environment with a Millrace to compare with")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each, in turn (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the inputs; 1 is about 12 s of serial work")
    parser.add_argument("--slots", type=int, default=2, help="tools side by side (2)")
    options = parser.parse_args()
    ways = [(sys.executable, CHECKS), *([(options.before, ())] if options.before else [])]
    lines, differs = [], False
    for name in options.names or CASES:
        with tempfile.TemporaryDirectory() as place:
            os.environ["XDG_CACHE_HOME"] = place  # what a tool costs is learnt by the first runs, which do not count
            case = CASES[name](Path(place), options.slots, options.scale, f"run --slots {options.slots} --")
            took: list[list[Took]] = [[] for _ in ways]
            for repeat in range(options.repeats + 1):
                digests = set[str]()
                for number in range(len(ways))[:: -1 if repeat % 2 else 1]:
                    one, digest = run(ways[number][0], case, ways[number][1])
                    digests.add(digest)
                    took[number] += [one] if repeat else []
                differs |= len(digests) > 1
            lines.append(row(name, took[0], took[-1] if options.before else []))
            print(" ".join(lines[-1]), file=sys.stderr, flush=True)
    head = ["", "job, CPU s", "own", "looks", "checks, CPU ms", "of the job"]
    print(table.markdown([*head, "own before", "more", "of the job", "wall"] if options.before else head, lines))
    print("bytes: " + ("DIFFERENT" if differs else "the same"))
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
