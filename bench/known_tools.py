"""Every known tool, small, middle and large: Millrace against the best that the tool's own options give.

``python -m bench known-tools --size small``; see ``bench/README.md``. The amount of work is found by trials of the tool
itself: records are added until it takes about as many seconds of CPU as the size says.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import inputs, measure, results
from bench.compare import Case, Contender, digest
from bench.tools import HMMER_VOLATILE

#: Seconds of CPU of the tool alone.
SIZES = {"small": 1.0, "middle": 10.0, "large": 100.0}

#: Millrace may take so many times what the best of the tool's own ways takes; of small work, so many seconds more.
MOST, MOST_SECONDS = 1.05, 0.2

#: A trial that takes at least this part of the wanted CPU tells how many records there have to be.
TELLING = 0.2

#: Times that the number of records is corrected, where they take less than this part of the wanted CPU.
CORRECTIONS, CLOSE = 3, 0.7

#: Records at most: more are not tried.
MOST_RECORDS = 4_000_000

OBABEL_VOLATILE = rb"^ OpenBabel[0-9]{10}"


@dataclass(frozen=True)
class Tool:
    """One tool: ``write`` makes an input of so many records, ``command`` reads it and writes ``out``."""

    name: str
    command: str
    write: Callable[[Path, int], None]
    #: What the tool offers to use more cores, in the place of ``{}`` in the command.
    own: tuple[str, ...] = ()
    #: Files that it needs beside the input.
    prepare: Callable[[Path], None] | None = None
    #: The command that does without Millrace what the command does with it, if that is another one.
    serial: str = ""
    #: ``out`` is a folder.
    folder: bool = False
    volatile: bytes = b""

    @property
    def program(self) -> str:
        return self.command.split()[0]

    def alone(self, option: str = "") -> str:
        """The command without Millrace."""
        return (self.serial or self.command).format(option)


def _fasta(source: str, name: str, letters: bytes, folder: Path, number: int) -> None:
    with (folder / name).open("wb") as file:
        file.writelines(inputs.copies(inputs.records(inputs.DATA / source), number, letters))


proteins = partial(_fasta, "proteins_queries.faa", "q.faa", inputs.AMINO)
genes = partial(_fasta, "genes_db.fna", "q.fna", inputs.BASES)


def profiles(folder: Path, number: int) -> None:
    """Profiles, again and again under other names."""
    found = (inputs.DATA / "profiles.hmm").read_text().split("//\n")[:-1]
    with (folder / "q.hmm").open("w") as file:
        for index in range(number):
            generation, which = divmod(index, len(found))
            file.write(found[which].replace("\nNAME  ", f"\nNAME  g{generation}_", 1) + "//\n")


def families(folder: Path, number: int) -> None:
    """Small families, a file each."""
    shutil.rmtree(folder / "families", ignore_errors=True)
    (folder / "families").mkdir()
    found = sorted((inputs.DATA / "families").glob("*.faa"), key=lambda path: path.stat().st_size)
    for index in range(number):
        generation, which = divmod(index, len(found))
        shutil.copy(found[which], folder / "families" / f"{generation:06}-{found[which].name}")


def ligands(folder: Path, number: int) -> None:
    """Drug-like molecules, a PDBQT file each."""
    shutil.rmtree(folder / "ligands", ignore_errors=True)
    (folder / "ligands").mkdir()
    made = sorted((folder / "made").glob("*.pdbqt"))
    for index in range(number):
        generation, which = divmod(index, len(made))
        shutil.copy(made[which], folder / "ligands" / f"{generation:06}-{made[which].name}")


def molecules(folder: Path, number: int) -> None:
    """Molecules in one MOL2 file."""
    head = "@<TRIPOS>MOLECULE"
    found = [head + part for part in (inputs.DATA / "ligands.mol2").read_text().split(head)[1:]]
    with (folder / "l.mol2").open("w") as file:
        file.writelines(found[index % len(found)] for index in range(number))


def make(command: str, folder: Path) -> None:
    """Run a shell command that makes what a tool needs."""
    subprocess.run(command, shell=True, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def protein_database(folder: Path) -> None:
    """All proteins, for BLAST, HMMER and DIAMOND."""
    shutil.copy(inputs.DATA / "proteins_db.faa", folder / "prot.faa")
    make("makeblastdb -in prot.faa -dbtype prot -out prot", folder)


def gene_database(folder: Path) -> None:
    """Genes, for BLAST and HMMER."""
    shutil.copy(inputs.DATA / "genes_db.fna", folder / "nucl.fna")
    make("makeblastdb -in nucl.fna -dbtype nucl -out nucl", folder)


def profile_library(folder: Path) -> None:
    """Pressed profiles."""
    shutil.copy(inputs.DATA / "profiles.hmm", folder / "p.hmm")
    make("hmmpress p.hmm", folder)


def diamond_database(folder: Path) -> None:
    """All proteins twice, the second time with other letters: the 23,000 of the goals."""
    found = inputs.records(inputs.DATA / "proteins_db.faa")
    with (folder / "prot.faa").open("wb") as file:
        file.writelines(inputs.copies(found, 2 * len(found), inputs.AMINO))
    make("diamond makedb --in prot.faa -d dmnd --quiet", folder)


def protein_targets(folder: Path) -> None:
    """All proteins, as they are."""
    shutil.copy(inputs.DATA / "proteins_db.faa", folder / "prot.faa")


def docking(folder: Path) -> None:
    """Receptor, box, and the ligands as files."""
    shutil.copy(inputs.DATA / "1iep_receptor.pdbqt", folder / "r.pdbqt")
    center = "center_x = 15.19\ncenter_y = 53.903\ncenter_z = 16.917\n"
    size = "".join(f"size_{axis} = 16\n" for axis in "xyz")
    (folder / "box.txt").write_text(f"{center}{size}exhaustiveness = 1\nmax_evals = 2000\n")
    (folder / "all").mkdir()
    (folder / "made").mkdir()
    make(f"obabel {inputs.DATA / 'ligands.mol2'} -O all/l.pdbqt -m", folder)
    for path in sorted((folder / "all").iterdir()):
        # Some of what Open Babel writes, Vina cannot read.
        with suppress(subprocess.CalledProcessError):
            make(f"vina --receptor r.pdbqt --config box.txt --seed 7 --ligand {path} --out made/{path.name}", folder)
            shutil.copy(path, folder / "made")


def _blast(name: str, write: Callable[[Path, int], None], query: str, database: str, more: str = "") -> Tool:
    ways = ["-num_threads {n}", "-num_threads {n} -mt_mode 1"]
    if name in ("psiblast", "tblastx"):
        ways = ways[:1]  # it has no other
    prepare = protein_database if database == "prot" else gene_database
    command = f"{name} -query {query} -db {database} -outfmt 6 {more}-out out {{}}"
    return Tool(name, command, write, own=tuple(ways), prepare=prepare)


def _hmmer(name: str, write: Callable[[Path, int], None], words: str, prepare: Callable[[Path], None]) -> Tool:
    command = f"{name} {{}} --noali -o out {words}"
    return Tool(name, command, write, own=("--cpu 0", "--cpu {n}"), prepare=prepare, volatile=HMMER_VOLATILE)


def _loop(folder: str, command: str) -> str:
    return f"for f in {folder}/*; do {command} || exit; done"


TOOLS = [
    _blast("blastp", proteins, "q.faa", "prot"),
    _blast("blastn", genes, "q.fna", "nucl", "-evalue 1e-3 "),
    _blast("blastx", genes, "q.fna", "prot"),
    _blast("tblastn", proteins, "q.faa", "nucl"),
    _blast("tblastx", genes, "q.fna", "nucl", "-evalue 1e-3 "),
    _blast("psiblast", proteins, "q.faa", "prot", "-num_iterations 2 "),
    _hmmer("hmmsearch", profiles, "q.hmm prot.faa", protein_database),
    _hmmer("hmmscan", proteins, "p.hmm q.faa", profile_library),
    _hmmer("phmmer", proteins, "q.faa prot.faa", protein_database),
    _hmmer("nhmmer", genes, "q.fna nucl.fna", gene_database),
    _hmmer("jackhmmer", proteins, "-N 2 q.faa prot.faa", protein_database),
    Tool(
        "mafft", "mafft --quiet --out out/ families", families, ("--thread {n}",), folder=True,
        serial=_loop("families", "mafft --quiet {} $f > out/${{f#families/}}"),
    ),
    Tool(
        "muscle", "muscle3 -quiet -in families -out out/", families, folder=True,
        serial=_loop("families", "muscle3 -quiet -in $f -out out/${{f#families/}}"),
    ),
    Tool(
        "vina", "vina --receptor r.pdbqt --config box.txt --seed 7 --verbosity 0 --ligand ligands --out out/", ligands, ("--cpu {n}",),
        prepare=docking, folder=True,
        serial=_loop("ligands", "vina --receptor r.pdbqt --config box.txt --seed 7 --verbosity 0 {} --ligand $f --out out/${{f#ligands/}}"),
    ),
    Tool("obabel", "obabel l.mol2 -O out.sdf", molecules, volatile=OBABEL_VOLATILE),
    Tool("diamond", "diamond blastp --quiet -q q.faa -d dmnd -o out {}", proteins, ("-p {n}",), prepare=diamond_database),
    Tool("diamond-blastx", "diamond blastx --quiet -q q.fna -d dmnd -o out {}", genes, ("-p {n}",), prepare=diamond_database),
    Tool(
        "mmseqs", "mmseqs easy-search q.faa prot.faa out tmp -v 1 {}", proteins, ("--threads {n}",), prepare=protein_targets,
        serial="MMSEQS_NUM_THREADS=1 mmseqs easy-search q.faa prot.faa out tmp -v 1 {}",
    ),
]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table as it grows, and say whether the goals are met."""
    parser = argparse.ArgumentParser(prog="python -m bench known-tools", description=__doc__)
    parser.add_argument("tools", nargs="*", help=f"which: {', '.join(tool.name for tool in TOOLS)} (default: all)")
    parser.add_argument(
        "--size", choices=SIZES, action="append", help="how much work; may be given again (default: small)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repeats (default 5)")
    parser.add_argument("--log", type=Path, help="keep each line as JSON, and go on after what is there")
    options = parser.parse_args(arguments)
    if unknown := set(options.tools) - {tool.name for tool in TOOLS}:
        parser.error(f"no tool is called {unknown.pop()!r}")
    done = {(row["tool"], row["size"]): row for row in _rows(options.log)}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for size in options.size or ["small"]:
        for tool in TOOLS:
            if (options.tools and tool.name not in options.tools) or (tool.name, size) in done:
                continue
            if not shutil.which(tool.program):
                print(f"{tool.name}: skipped, {tool.program} is not installed", file=sys.stderr)
                continue
            row = compare(tool, size, options.repeats, partial(_enough, tool, seconds=SIZES[size]))
            done[tool.name, size] = row
            print(f"{tool.name}, {size}: {verdict(row)}", file=sys.stderr, flush=True)
            if options.log:
                with options.log.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    show_rows("known-tools", list(done.values()))
    return int(any("MISSED" in verdict(row) or not row["same"] for row in done.values()))


def compare(
    tool: Tool, size: str, repeats: int, write: Callable[[Case], tuple[int, measure.Run | None]]
) -> dict[str, Any]:
    """Millrace beside the tool alone and the tool's own ways, in turn.

    Args:
        write: Makes the input; says how many records it has, and what the tool alone took, if it was run on it just then.
    """
    n_cores = len(os.sched_getaffinity(0))
    millrace = Path(sys.executable).parent / "millrace"
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        if tool.prepare:
            tool.prepare(folder)
        out = "out.sdf" if tool.name == "obabel" else "out"
        case = Case(tool.name, tool.command, folder, [], out, tool.volatile)
        n_records, tried = write(case)
        ways = ["", *(way.format(n=n_cores) for way in tool.own)]
        # What the first run learns of the tool is of use to the others, as it is to users.
        known = {"XDG_STATE_HOME": str(folder / "state")}
        contenders = [Contender("millrace", f"{millrace} run -q -- {tool.command.format('')}", environ=known)]
        contenders += [Contender(way or "alone", tool.alone(way)) for way in ways]
        series = {each.name: measure.Series() for each in contenders}
        digests = {}
        if tried and repeats == 1:
            # Of large work, each run counts.
            series["alone"].runs.append(tried)
            digests["alone"] = digest(case)
        for repeat in range(repeats):
            for each in contenders[repeat % len(contenders) :] + contenders[: repeat % len(contenders)]:
                if len(series[each.name].runs) == repeats:
                    continue
                series[each.name].runs.append(_run(tool, case, each))
                digests[each.name] = digest(case)
        best = min((each for each in contenders[1:]), key=lambda each: series[each.name].median)
        return {
            "tool": tool.name, "size": size, "records": n_records, "repeats": repeats, "load": os.getloadavg()[0],
            "same": digests["millrace"] == digests["alone"], "best": best.name,
            "first": series["millrace"].runs[0].wall,
            **{f"{key}_{name}": value for key, each in (("millrace", "millrace"), ("best", best.name), ("alone", "alone"))
               for name, value in (("wall", series[each].median), ("cpu", series[each].cpu))},
            "runs": {each: [(run.wall, run.cpu) for run in found.runs] for each, found in series.items()},
        }  # fmt: skip


def _run(tool: Tool, case: Case, contender: Contender) -> measure.Run:
    out = case.folder / case.out
    shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
    if tool.folder:
        out.mkdir()
    return measure.run(contender.command, case.folder, contender.environ)


def _enough(tool: Tool, case: Case, seconds: float) -> tuple[int, measure.Run | None]:
    """Write an input with which the tool alone takes about ``seconds`` of CPU; see `compare`."""
    number, least, before = 1, 0.0, 0
    while True:
        tool.write(case.folder, number)
        took = _run(tool, case, Contender("trial", tool.alone())).cpu
        if not before:
            least = took
        if took >= TELLING * seconds + least or number >= MOST_RECORDS or (number == 1 and took >= 0.7 * seconds):
            break
        before, number = number, 4 * number
    # The first record tells what a start takes; what was added to it, the slope.
    slope = max(took - least, 1e-6) / max(number - 1, 1)
    wanted = int(max(1.0, min((seconds - least) / slope, MOST_RECORDS))) if number > 1 else 1
    for _ in range(CORRECTIONS):  # records differ
        tool.write(case.folder, wanted)
        trial = _run(tool, case, Contender("trial", tool.alone()))
        if number == 1 or wanted >= MOST_RECORDS or trial.cpu >= CLOSE * seconds:
            return wanted, trial
        wanted = int(min(wanted * seconds / trial.cpu, MOST_RECORDS)) + 1
    tool.write(case.folder, wanted)
    return wanted, None


def verdict(row: dict[str, Any]) -> str:
    """Whether Millrace met the goals, in words."""
    wall, best = row["millrace_wall"], row["best_wall"]
    good = wall <= MOST * best or (row["size"] == "small" and wall <= best + MOST_SECONDS)
    return (
        f"{wall:.2f} s, {wall / best:.3f} of {best:.2f} s ({row['best']}), CPU {row['millrace_cpu'] / row['best_cpu']:.3f} of it: "
        f"{'met' if good else 'MISSED'}; bytes: {'same' if row['same'] else 'NOT THOSE OF THE TOOL ALONE'}"
    )


def show_rows(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print all rows as Markdown, and keep them."""
    head = (
        "",
        "records",
        "millrace s",
        "first s",
        "best s",
        "best way",
        "ratio",
        "more s",
        "CPU ratio",
        "same",
        "goal",
    )
    lines = [
        (
            f"{row['tool']}, {row['size']}", str(row["records"]), f"{row['millrace_wall']:.2f}", f"{row['first']:.2f}",
            f"{row['best_wall']:.2f}", row["best"], f"{row['millrace_wall'] / row['best_wall']:.3f}",
            f"{row['millrace_wall'] - row['best_wall']:.2f}", f"{row['millrace_cpu'] / row['best_cpu']:.3f}",
            "yes" if row["same"] else "NO", "met" if ": met;" in verdict(row) else "MISSED",
        )
        for row in rows
    ]  # fmt: skip
    results.show_table(name, head, lines)


def _rows(log: Path | None) -> list[dict[str, Any]]:
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in log.read_text().splitlines()] if log else []
    return []
