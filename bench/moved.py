"""``python -m bench.moved --scenarios 500``: kill runs of real tools, and let them go on in new folders.

Each scenario kills a run one to three times, by SIGKILL or SIGTERM, at a random execution of the tool. Each start has a
new folder, other names of input and outputs, a link or a copy of the input, and a run directory by ``--run-dir`` or ``--store``;
what the folder before held is deleted, in part or all of it, or stays. The last start comes to its end, and its
outputs are compared with those of the serial command in the same folder. Executions are counted by a wrapper of the tool.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "tests" / "support")]

import harness  # noqa: E402
from moved_runs import TOOLS, MovedRun, make_inputs  # noqa: E402

#: What becomes of the folder of an earlier start.
DELETIONS = ("nothing", "outputs", "all")


@dataclass
class MoveTotals:
    """Counts of all scenarios."""

    kinds: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    #: Batches computed twice, over what the kills of a scenario allow: the larger one, the closer to a problem.
    twice: Counter[int] = field(default_factory=Counter)
    kills: int = 0
    executions: int = 0


def play_scenario(name: str, source: Path, root: Path, dice: random.Random, totals: MoveTotals) -> None:
    """Play one scenario, and add what was seen to ``totals``."""
    tool = TOOLS[name]
    place = dice.choice((("--run-dir", str(root / "state")), ("--store", str(root / "store"))))
    atomic = dice.choice(((), ("--atomic-output",)))
    run = MovedRun(tool, source, root, (*place, *atomic, "--grace", "1"))
    n_batches = -(-(source / "in.fa").read_text().count(">") // tool.batch)
    story, n_kills = [name, place[0], *atomic], 0
    for number in range(dice.randint(1, 3)):
        folder, words, typed, outputs, how = _prepare_start(run, number, dice)
        hold = min(len(run.executions) + dice.randint(1, n_batches), n_batches + 2 * number)
        kind = dice.choice((signal.SIGKILL, signal.SIGTERM))
        process = run.start(folder, words, typed, hold=hold)
        said = run.kill_at(process, hold, kind)
        n_kills += process.returncode != 0
        story += [how, f"{kind.name} at {hold}: {process.returncode}"]
        if process.returncode not in (0, -signal.SIGKILL, 128 + signal.SIGTERM):
            totals.problems.append(f"{story}: {said}")
            return
        if left := harness.left_over(str(root)):
            totals.problems.append(f"{story}: left over: {left}")
        _delete(folder, outputs, dice.choice(DELETIONS))
        if process.returncode == 0:  # it was over before; the next start is a new run
            run.log.unlink(missing_ok=True)  # with a store, nothing may have been computed
            n_kills = 0
    folder, words, typed, outputs, how = _prepare_start(run, 9, dice)
    expected = run.compute_serially(folder, words, typed, outputs)
    code, said = run.run(folder, words, typed)
    story.append(how)
    totals.kinds[name] += 1
    totals.kills += n_kills
    totals.executions += len(run.executions)
    if code:
        totals.problems.append(f"{story}: exit code {code}: {said}")
        return
    if run.read_outputs(folder, words, outputs) != expected:
        totals.problems.append(f"{story}: not the serial bytes")
    allowed = n_kills * (run.slots + tool.is_framed)
    totals.twice[run.computed_twice - allowed] += 1
    if run.computed_twice > allowed:
        totals.problems.append(f"{story}: {run.computed_twice} batches twice, after {n_kills} kills")
    parts = [*folder.rglob("*.millrace*"), *root.glob("state"), *root.glob("store/*.millrace*")]
    if parts:
        totals.problems.append(f"{story}: left {parts}")


def _prepare_start(
    run: MovedRun, number: int, dice: random.Random
) -> tuple[Path, list[str], str, tuple[str, ...], str]:
    """Make the folder of a start; return it, the command, the input, the outputs, and what was chosen in words."""
    typed = dice.choice(("in.fa", "data/dataset_1.dat", f"query{number}.faa"))
    database = dice.choice(("db", f"../d{number}/db")) if run.tool.moves_database else "db"
    link = dice.random() < 0.5
    folder = run.prepare_folder(f"w{number}", typed, database, link=link)
    kind = dice.choice(("out{k}", "results/r{k}.txt", str(folder / "abs{k}")))
    outputs = tuple(kind.replace("{k}", f"{k}") for k in range(run.tool.n_outputs))
    (folder / "results").mkdir(exist_ok=True)
    if dice.random() < 0.2:
        (folder / outputs[0]).write_text("of an earlier run")
    how = f"{typed} {'link' if link else 'copy'} {database} {kind}"
    return folder, run.fill_words(typed, database, outputs), typed, outputs, how


def _delete(folder: Path, outputs: tuple[str, ...], what: str) -> None:
    if what == "all":
        shutil.rmtree(folder)
    elif what == "outputs":
        for path in outputs:
            (folder / path).unlink(missing_ok=True)


def main() -> int:
    """Play scenarios, and print what was seen; the exit code says whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=500, help="how many (500)")
    parser.add_argument("--seed", type=int, default=1, help="of the first scenario (1)")
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), help="which tools")
    parser.add_argument("--seconds-in-all", type=float, default=1e9, help="begin none after so long")
    arguments = parser.parse_args()
    data = Path(os.environ.get("MILLRACE_TEST_DATA") or REPO / ".tools" / "data")
    totals, begun = MoveTotals(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs"
        make_inputs(inputs, data)
        for seed in range(arguments.seed, arguments.seed + arguments.scenarios):
            if time.monotonic() - begun > arguments.seconds_in_all:
                break
            name = arguments.tools[seed % len(arguments.tools)]
            root = Path(folder) / f"scenario-{seed}"
            root.mkdir()
            n_problems = len(totals.problems)
            play_scenario(name, inputs / name, root, random.Random(seed), totals)
            for problem in totals.problems[n_problems:]:
                print(f"seed {seed}: {problem}", flush=True)
            shutil.rmtree(root)
    print(f"{sum(totals.kinds.values())} scenarios ({dict(totals.kinds)}), {totals.kills} kills, "
          f"{totals.executions} executions, {len(totals.problems)} problems, {time.monotonic() - begun:.0f} s")  # fmt: skip
    print("batches computed twice, less one for each slot and kill (and one for each frame): "
          + ", ".join(f"{over}: {n}" for over, n in sorted(totals.twice.items())))  # fmt: skip
    return 1 if totals.problems else 0


if __name__ == "__main__":
    sys.exit(main())
