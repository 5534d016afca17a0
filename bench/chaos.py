"""``python -m bench.chaos --kills 200``: kill runs of real tools at chosen moments, and count the damage."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import harness  # noqa: E402


def main() -> int:
    """Kill, and print a table; the exit code says whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kills in all, shared by the tools (200)")
    parser.add_argument("--seed", type=int, default=1, help="decides moments and targets (1)")
    parser.add_argument("--tools", nargs="+", default=["blastp", "hmmscan"], help="which tools")
    arguments = parser.parse_args()
    data = Path(os.environ.get("MILLRACE_TEST_DATA") or REPO / ".tools" / "data")
    problems = 0
    print(
        f"{'tool':8} {'kills':>5} {'starts':>6} {'resumed':>7} {'whole runs':>10} "
        f"{'missed':>6} {'wrong':>5} {'seconds':>7}"
    )
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for tool in arguments.tools:
            case = getattr(harness, tool)(Path(folder) / tool, data)
            case.serial()
            chaos, begun = harness.Chaos(case, arguments.seed), time.monotonic()
            chaos.until(arguments.kills // len(arguments.tools))
            print(
                f"{tool:8} {chaos.n_kills:5} {chaos.started:6} {chaos.resumed:7} {chaos.complete:10} "
                f"{chaos.missed:6} "
                f"{len(chaos.problems):5} {time.monotonic() - begun:7.0f}",
                flush=True,
            )
            problems += len(chaos.problems)
            runs.append(chaos)
    print(f"\n{'kills by moment and target':28}" + "".join(f"{target:>10}" for target in harness.TARGETS))
    kills = sum((chaos.kills for chaos in runs), start=type(runs[0].kills)())
    for moment in dict.fromkeys(moment for moment, _ in kills):
        print(f"{moment:28}" + "".join(f"{kills[(moment, target)]:10}" for target in harness.TARGETS))
    for chaos in runs:
        for problem in chaos.problems:
            print(f"\n{chaos.case.name}: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
