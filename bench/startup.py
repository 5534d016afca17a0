"""How long it takes until Millrace does something: the smallest runs, and what is imported for them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import measure, table

#: Goal for the smallest run, in seconds.
GOAL = 0.15


def startup(folder: Path, slots: int, scale: float, millrace: str, repeats: int) -> dict[str, Any]:
    """Wall time of ``--version`` and of a run of one record."""
    print("\n## startup\n", flush=True)
    (folder / "one.fa").write_bytes(b">one\nMKV\n")
    program = millrace.split(" run ")[0]
    commands = {
        "millrace --version": f"exec {program} --version > out",
        "millrace run -- cat, 1 record": f"exec {program} run -q --format fasta -- cat < one.fa > out",
        "python -c pass": f"exec {sys.executable} -c pass",
        "parallel --pipe cat, 1 record": f"exec parallel -j{slots} --pipe --recstart '>' cat < one.fa > out",
    }
    series = {name: measure.Series() for name in commands}
    for _ in range(max(5, 4 * repeats)):
        for name, command in commands.items():
            series[name].runs.append(measure.run(command, folder))
    rows = [
        {"name": name, "wall": found.median, "best": found.best, "cpu": found.cpu} for name, found in series.items()
    ]
    lines = [
        (str(row["name"]), *(f"{float(str(row[key])) * 1e3:.0f}" for key in ("wall", "best", "cpu"))) for row in rows
    ]
    print(table.markdown(("", "wall, median ms", "best ms", "CPU ms"), lines))
    best = series["millrace run -- cat, 1 record"].best
    verdict = f"startup: {best * 1e3:.0f} ms (goal {GOAL * 1e3:.0f}): {'met' if best < GOAL else 'MISSED'}"
    print(f"\n{verdict}\n\nheaviest imports of the run, ms with what they import:\n")
    print("\n".join(f"  {milliseconds:6.1f}  {name}" for milliseconds, name in heaviest(folder)), flush=True)
    return {"case": "startup", "rows": rows, "verdict": verdict}


def heaviest(folder: Path, number: int = 12) -> list[tuple[float, str]]:
    """Modules that cost most to import for a run, with what they import in turn."""
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "millrace",
        "run",
        "-q",
        "--fresh",
        "--format",
        "fasta",
        "--",
        "cat",
    ]
    with (folder / "one.fa").open() as stdin:
        said = subprocess.run(command, cwd=folder, stdin=stdin, capture_output=True, text=True, check=True).stderr
    found = re.findall(r"^import time: +\d+ \| +(\d+) \| +(\S+)$", said, re.MULTILINE)
    return sorted(((int(microseconds) / 1e3, name) for microseconds, name in found), reverse=True)[:number]
