"""``python -m bench.storm --runs 500``: random scenarios of a misbehaving tool, somebody who interferes, and kills.

Each scenario is drawn from a seed: ``--seed N`` is the first of ``--runs`` seeds, and ``--runs 1 --seed N`` repeats one alone. After each
start the output must be the serial tool's bytes, or there is an exit code with a message; once the causes are gone, the same
command (or ``--fresh``, where the message says so) must end with the serial bytes; and nothing may be left.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.storm.judge import Judge, Outcome
from bench.storm.scenario import Scenario, draw

#: Says that this process has filesystems of its own.
APART = "STORM_APART"


def main() -> int:
    """Run scenarios, and print a table; the exit code says whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help="scenarios (500)")
    parser.add_argument("--seed", type=int, default=1, help="of the first one; each has the next (1)")
    parser.add_argument("--jobs", type=int, default=3, help="scenarios side by side (3)")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="file of what was seen, to carry on from")
    parser.add_argument("--seconds-in-all", type=float, default=1e9, help="begin no scenario after so long")
    parser.add_argument("-v", "--verbose", action="store_true", help="what each start said")
    arguments = parser.parse_args()
    if os.geteuid() == 0 and APART not in os.environ:
        apart()
    rows = [json.loads(line) for line in arguments.log.read_text().splitlines()] if arguments.log.is_file() else []
    known = {row["seed"] for row in rows}
    seeds = [seed for seed in range(arguments.seed, arguments.seed + arguments.runs) if seed not in known]
    deadline = time.monotonic() + arguments.seconds_in_all
    with tempfile.TemporaryDirectory(prefix="storm-") as folder, arguments.log.open("a") as log:

        def one(seed: int) -> Outcome | None:
            if time.monotonic() > deadline:
                return None
            return Judge(draw(seed), Path(folder) / str(seed), mounted=APART in os.environ).run()

        with ThreadPoolExecutor(arguments.jobs) as pool:
            for outcome in pool.map(one, seeds):
                if outcome:
                    rows.append(row := as_row(outcome))
                    log.write(json.dumps(row) + "\n")
                    log.flush()
                    tell(outcome, verbose=arguments.verbose)
    report(rows)
    return 1 if any(row["problems"] for row in rows) else 0


def apart() -> None:
    """Become a process with mounts of its own, and a memory filesystem that no other run uses."""
    script = 'mount -t tmpfs -o size=50% storm /dev/shm && exec "$@"'
    os.environ[APART] = "1"
    command = [sys.executable, "-m", "bench.storm", *sys.argv[1:]]
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *command])


def as_row(outcome: Outcome) -> dict[str, object]:
    """What is kept of a scenario."""
    scenario: Scenario = outcome.scenario
    deeds = sorted({deed.what for seen in outcome.seen for deed in seen.done.deeds if not deed.signal})
    kills = sorted({f"{deed.signal} {deed.what}" for seen in outcome.seen for deed in seen.done.deeds if deed.signal})
    return {
        "seed": scenario.seed, "tool": scenario.tool, "layout": scenario.layout, "deeds": deeds, "kills": kills,
        "codes": outcome.codes, "seconds": round(outcome.seconds, 1), "problems": outcome.problems,
    }  # fmt: skip


def tell(outcome: Outcome, *, verbose: bool) -> None:
    """A line for each scenario; all about one with a problem."""
    print(
        f"{outcome.scenario.seed:6} {outcome.scenario.tool:28} {outcome.scenario.layout:12} {outcome.codes}", flush=True
    )
    if verbose or outcome.problems:
        print(outcome.scenario)
        for seen in outcome.seen:
            print(f"    {seen}".replace("\n", "\n      "))
    for problem in outcome.problems:
        print(f"  PROBLEM: {problem}", flush=True)


def report(rows: list[dict[str, Any]]) -> None:
    """The tables."""
    by: dict[str, Callable[[dict[str, Any]], list[str]]] = {
        "tool": lambda row: [str(row["tool"])], "third party": lambda row: list(row["deeds"]) or ["none"],
        "kill": lambda row: list(row["kills"]) or ["none"],
    }  # fmt: skip
    for title, keys in by.items():
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows:
            for key in keys(row):
                codes: list[int] = row["codes"]
                counts[key].update(scenarios=1, starts=len(codes), failed=sum(0 < code < 128 for code in codes), killed=sum(not 0 <= code <= 128 for code in codes), wrong=bool(row["problems"]))  # fmt: skip
        print(f"\n{title:28}" + "".join(f"{name:>10}" for name in ("scenarios", "starts", "failed", "killed", "wrong")))
        for key, count in sorted(counts.items()):
            print(
                f"{key:28}"
                + "".join(f"{count[name]:10}" for name in ("scenarios", "starts", "failed", "killed", "wrong"))
            )
    n_starts = sum(len(row["codes"]) for row in rows)
    wrong = [row["seed"] for row in rows if row["problems"]]
    print(f"\n{len(rows)} scenarios, {n_starts} starts, {len(wrong)} wrong: {wrong}")


if __name__ == "__main__":
    sys.exit(main())
