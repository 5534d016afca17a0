"""``python -m bench.warm``: tools that take long to start, one record a task, warm and as ever, in turn; the bytes of both are
compared with the serial tool's."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import inputs, measure
from bench.results import show_table

#: What a script has imported before it reads its first record.
SCRIPT = """import asyncio, email, http.client, sys, unittest, xml.dom.minidom
with open(sys.argv[1]) as file, open(sys.argv[2], "w") as out:
    for record in file.read().split(">")[1:]:
        name, *lines = record.splitlines()
        print(name.split()[0], sum(map(len, lines)), sep="\\t", file=out)
"""

#: Entries of the database, so few that a start counts.
N_ENTRIES = 4000

#: Name, the input and the file of the data that it is made of, options, the command, what two serial runs have not in common.
CASES = (
    ("blastp, one query a task", "q.faa", "proteins_queries.faa", "", "blastp -query q.faa -db db -outfmt 6 -out out", ""),
    ("obabel, one molecule a task", "lig.mol2", "ligands.mol2", "", "obabel lig.mol2 -O out.sdf", "OpenBabel[0-9]+"),
    ("a Python script with imports", "q.faa", "proteins_queries.faa", "--input q.faa --output out", f"{sys.executable} tool.py q.faa out", ""),
    ("hmmscan, which starts fast", "q.faa", "proteins_queries.faa", "", "hmmscan -o /dev/null --tblout out p.hmm q.faa", "(?m)^#.*$"),
)  # fmt: skip


def prepare(folder: Path, name: str, source: str, n_records: int) -> None:
    """Put ``n_records`` records of the data in ``folder``, and what the tools need besides."""
    text = (inputs.DATA / source).read_bytes()
    start = b">" if source.endswith(".faa") else b"@<TRIPOS>MOLECULE"
    originals = [start + each for each in text.split(start)[1:]]
    (folder / name).write_bytes(b"".join(originals[k % len(originals)] for k in range(n_records)))
    (folder / "tool.py").write_text(SCRIPT)
    shutil.copy(inputs.DATA / "profiles.hmm", folder / "p.hmm")
    proteins = (inputs.DATA / "proteins_db.faa").read_bytes().split(b">")[1 : N_ENTRIES + 1]
    (folder / "db.faa").write_bytes(b"".join(b">" + each for each in proteins))
    database = ["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"]
    for command in (database, ["hmmpress", "p.hmm"]):
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def written(folder: Path, volatile: str) -> bytes:
    """What the tool wrote, without what differs from time to time; the file goes."""
    [path] = folder.glob("out*")
    text = path.read_bytes()
    path.unlink()
    return re.sub(volatile.encode(), b"", text) if volatile else text


def main() -> int:
    """Measure; prints a table. The exit code says whether bytes differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=2, help="tools side by side (2)")
    parser.add_argument("--records", type=int, default=100, help="records of each input (100)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, in turn (3)")
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    lines, differs = [], False
    for name, source, data, more, command, volatile in CASES:
        series = {"": measure.Series(), "--warm": measure.Series()}
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            prepare(folder, source, data, options.records)
            subprocess.run(command, shell=True, cwd=folder, check=True, stderr=subprocess.DEVNULL)
            want = written(folder, volatile)
            for _ in range(options.repeats):
                for how, runs in series.items():
                    ours = f"millrace run -q --verify 0 --fragments 1 --batch 1 --slots {options.slots} {how} {more}"
                    runs.runs.append(measure.run(f"exec {ours} -- {command}", folder))
                    differs |= written(folder, volatile) != want
        plain, warm = series.values()
        lines.append((
            name, f"{plain.cpu:.2f}", f"{warm.cpu:.2f}", f"{1 - warm.cpu / plain.cpu:.0%}", f"{plain.median:.2f}", f"{warm.median:.2f}",
        ))  # fmt: skip
    show_table("warm", ("", "CPU s", "warm", "saved", "wall s", "warm"), lines)
    print("bytes of all: " + ("DIFFERENT" if differs else "the serial tool's"))
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
