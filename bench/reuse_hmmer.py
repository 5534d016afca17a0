"""What a store saves for HMMER: CPU and wall time with one and without one, as models or sequences are added.

    python -m bench.reuse_hmmer --models 4000 --proteins 300

Of ``hmmscan`` the models are those of the test data, and behind them models of the same nodes in another order, which hardly
find anything; before, 3 % of them were not there. Of ``hmmsearch`` and ``phmmer`` 3 % of the sequences are new.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import inputs
from bench.results import show_table

#: Share of the targets that are new.
NEW = 0.03

#: Lines that differ from run to run, or as one process of the tool uses no threads.
VOLATILE = re.compile(rb"(?m)^# (?:Date|Current dir|CPU time|Mc/sec|number of worker threads):.*\n| --cpu 0")

#: Commands; the files are those of the folder.
COMMANDS = {
    "hmmscan": "hmmscan -o /dev/null --tblout t --domtblout d {0}.hmm q.faa",
    "hmmscan --cut_ga, report": "hmmscan --cut_ga -o r --tblout t {0}.hmm q.faa",
    "hmmsearch": "hmmsearch -o r --tblout t --domtblout d few.hmm {0}.faa",
    "phmmer": "phmmer -o r --tblout t few.faa {0}.faa",
}


def shuffle_nodes(choose: random.Random, model: str, name: str) -> str:
    """Return a model with the emissions of all nodes in another order."""
    lines = model.split("\n")
    nodes = [at for at, line in enumerate(lines) if re.match(r" +\d+ ", line) and len(line.split()) > 21]
    emissions = [lines[at].split()[1:21] for at in nodes]
    choose.shuffle(emissions)
    for at, emission in zip(nodes, emissions, strict=True):
        words = lines[at].split()
        lines[at] = "  ".join([words[0], *emission, *words[21:]])
    return re.sub(r"(?m)^NAME .*$", f"NAME  {name}", "\n".join(lines), count=1)


def prepare(folder: Path, n_models: int, n_proteins: int, grow: int) -> None:
    """Write models, proteins and sequences, before and after."""
    choose = random.Random(53)
    models = re.findall(r"^HMMER(?:.*\n)+?//\n", (inputs.DATA / "profiles.hmm").read_text(), re.MULTILINE)
    models = [re.sub(r"(?m)^STATS", "GA    25.00 20.00;\nSTATS", each, count=1) for each in models]
    (folder / "few.hmm").write_text("".join(models[:20]))
    models += [shuffle_nodes(choose, models[k % len(models)], f"chance{k}") for k in range(n_models - len(models))]
    sequences = [each.decode() for each in inputs.records(inputs.DATA / "proteins_db.faa")]
    for number in range(len(sequences) * (grow - 1)):
        letters = list("".join(sequences[number % len(sequences)].split("\n")[1:]))
        choose.shuffle(letters)
        sequences.append(f">chance{number}\n{''.join(letters)}\n")
    for name, targets in (("hmm", models), ("faa", sequences)):
        choose.shuffle(targets)
        (folder / f"after.{name}").write_text("".join(targets))
        (folder / f"before.{name}").write_text("".join(each for each in targets if choose.random() > NEW))
    for name in ("before", "after"):
        subprocess.run(["hmmpress", f"{name}.hmm"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    queries = list(inputs.copies(inputs.records(inputs.DATA / "proteins_queries.faa"), n_proteins, inputs.AMINO))
    (folder / "q.faa").write_bytes(b"".join(queries))
    (folder / "few.faa").write_bytes(b"".join(queries[:20]))


def measure(folder: Path, words: list[str]) -> tuple[float, float, bytes]:
    """Run a command; return CPU and wall seconds, and what it wrote."""
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, wall = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime, time.monotonic() - began
    written = [VOLATILE.sub(b"", (folder / name).read_bytes()) for name in "rtd" if (folder / name).exists()]
    for name in "rtd":
        (folder / name).unlink(missing_ok=True)
    return cpu, wall, b"".join(written)


def main(arguments: list[str]) -> int:
    """Measure, and print the table; 1 if bytes differ."""
    parser = argparse.ArgumentParser(prog="python -m bench.reuse_hmmer", description=__doc__)
    parser.add_argument("--models", type=int, default=2000, help="models of hmmscan")
    parser.add_argument("--proteins", type=int, default=100, help="queries of hmmscan")
    parser.add_argument("--grow", type=int, default=4, help="size of the file of sequences")
    parser.add_argument("--only", default="", help="commands with this text")
    asked = parser.parse_args(arguments)
    run = [sys.executable, "-m", "millrace", "run", "-q", "--progress", "none"]
    rows, same = [], True
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        prepare(folder, asked.models, asked.proteins, asked.grow)
        for what, command in COMMANDS.items():
            if asked.only not in what:
                continue
            before, after = (shlex.split(command.format(each)) for each in ("before", "after"))
            serial = measure(folder, ["env", "HMMER_NCPU=0", *after])
            kept = [*run, "--store", f"store {what}", "--"]
            parts = {
                "the tool itself": serial,
                "without a store, before": (old := measure(folder, [*run, "--fresh", "--", *before])),
                "into an empty store, before": (first := measure(folder, [*kept, *before])),
                "without a store": (plain := measure(folder, [*run, "--fresh", "--", *after])),
                "3 % of the targets new": (known := measure(folder, [*kept, *after])),
            }
            same = same and old[2] == first[2] and serial[2] == plain[2] == known[2]
            of = [old, old, old, plain, plain]
            rows += [
                (what, part, f"{cpu:.1f}", f"{wall:.1f}", f"{cpu / whole[0]:.2f}")
                for (part, (cpu, wall, _)), whole in zip(parts.items(), of, strict=True)
            ]
    show_table("reuse_hmmer", ("", "", "CPU s", "wall s", "of a run without a store"), rows)
    print(f"\nthe same bytes: {'yes' if same else 'NO'}")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
