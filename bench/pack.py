"""How small results get: gzip, zstd with a long window, and packed by their meaning; each unpacked and compared."""

from __future__ import annotations

import argparse
import filecmp
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench import inputs
from bench.results import show_table

MILLRACE = str(Path(sys.executable).parent / "millrace")

_MANY = "-num_descriptions 500 -num_alignments 500"
_HMM_OUTPUTS = "-o OUT --tblout t --domtblout d --pfamtblout p"


@dataclass(frozen=True)
class Result:
    """A command, the database and queries that it names, and the files that it writes."""

    name: str
    command: str
    database: str
    queries: str
    outputs: tuple[str, ...] = ("OUT",)


RESULTS = (
    Result("blastp 0, 500 targets", f"blastp -query q.faa -db prot -outfmt 0 {_MANY} -out OUT", "prot", "q.faa"),
    *(Result(f"blastp {k}", f"blastp -query q.faa -db prot -outfmt {k} -out OUT", "prot", "q.faa") for k in (5, 6, 7)),
    Result("blastn 6, -task blastn", "blastn -task blastn -evalue 0.8 -query contigs.fna -db genes -outfmt 6 -out OUT", "genes", "contigs.fna"),
    Result("tblastn 6", "tblastn -query q.faa -db genes -outfmt 6 -out OUT", "genes", "q.faa"),
    Result("hmmscan, 4 outputs", f"hmmscan {_HMM_OUTPUTS} profiles.hmm q.faa", "profiles.hmm", "q.faa", ("OUT", "t", "d", "p")),
    Result(
        "hmmsearch, 3 outputs", f"hmmsearch {_HMM_OUTPUTS.rpartition(' --')[0]} profiles.hmm db.faa", "db.faa", "profiles.hmm", ("OUT", "t", "d"),
    ),
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure, and print the table; 1 if a result does not come out as it was."""
    parser = argparse.ArgumentParser(prog="python -m bench pack", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="how the names of results begin (default: all)")
    parser.add_argument("--batch", type=int, default=0, help="queries whose hits are kept together")
    parser.add_argument("--part", type=int, default=0, help="only so many of the queries")
    parser.add_argument(
        "--grow",
        type=int,
        default=1,
        help="proteins by chance behind those of the database, up to so many times its size",
    )
    parser.add_argument("--live", action="store_true", help="CPU time of runs with --pack-to beside plain ones instead")
    options = parser.parse_args(arguments)
    chosen = [each for each in RESULTS if not options.names or each.name.startswith(tuple(options.names))]
    if options.live:
        return measure_live(chosen, options.part, options.grow)
    rows = []
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        prepare(Path(folder), options.part, options.grow)
        for each in chosen:
            rows.append(measure(each, Path(folder), options.batch))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    show_table("pack", ("", "original", "gzip -9", "zstd -19 --long", "packed", "original / packed", "zstd / packed", "search, CPU s", "pack", "unpack", "unpack / search", "same"), rows)  # fmt: skip
    return int(any(row[-1] != "yes" for row in rows))


def prepare(folder: Path, part: int, grow: int = 1) -> None:
    """Databases and queries."""
    data = inputs.DATA
    proteins = inputs.records(data / "proteins_queries.faa")
    (folder / "q.faa").write_bytes(b"".join(proteins[: part or None]))
    for name, source in (("db.faa", "proteins_db.faa"), ("contigs.fna", "contigs.fna"), ("profiles.hmm", "profiles.hmm")):  # fmt: skip
        (folder / name).write_bytes((data / source).read_bytes())

    more = folder / "more.faa"
    inputs.write_fasta(more, (grow - 1) * (folder / "db.faa").stat().st_size)
    with (folder / "db.faa").open("ab") as database:
        database.write(more.read_bytes())

    def quietly(*command: str | Path) -> None:
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)

    quietly("makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "prot", "-title", "proteins")
    quietly("makeblastdb", "-in", data / "genes_db.fna", "-dbtype", "nucl", "-out", "genes", "-title", "genes")
    quietly("hmmpress", "profiles.hmm")


def measure(result: Result, folder: Path, batch: int) -> tuple[str, ...]:
    """One row: bytes and CPU seconds."""
    command = shlex.split(result.command)
    searched = cpu(command, folder)
    more = ["--batch", str(batch)] if batch else []
    packing = cpu([MILLRACE, "pack", *more, "-o", "result.mrp", "--", *command], folder)
    again = [f"again-{name}" for name in result.outputs]
    named = [word for name in again for word in ("-o", name)]
    queries = ["--queries", result.queries, "--db", result.database]
    unpacking = cpu([MILLRACE, "unpack", "result.mrp", "--yes", *queries, *named], folder)
    pairs = zip(result.outputs, again, strict=True)
    same = all(filecmp.cmp(folder / name, folder / other, shallow=False) for name, other in pairs)
    sizes = [sum((folder / name).stat().st_size for name in result.outputs)]
    for program in (["gzip", "-9"], ["zstd", "-q", "-19", "--long=27"]):
        sizes.append(sum(piped(program, folder / name) for name in result.outputs))
    sizes.append((folder / "result.mrp").stat().st_size)
    ratios = (f"{sizes[0] / sizes[3]:.0f}", f"{sizes[2] / sizes[3]:.0f}")
    seconds = (f"{searched:.1f}", f"{packing:.1f}", f"{unpacking:.1f}", f"{unpacking / searched:.0%}")
    return (result.name, *(f"{size:,}" for size in sizes), *ratios, *seconds, "yes" if same else "NO")


def measure_live(chosen: list[Result], part: int, grow: int) -> int:
    """Print the CPU time of runs, plain and with ``--pack-to``, one after the other; the database is known before."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        prepare(folder, part, grow)
        for each in chosen:
            command = ["--", *shlex.split(each.command)]
            packing = [MILLRACE, "run", "--fresh", "--pack-to", "result.mrp", *command]
            cpu(packing, folder)
            plain, packed = cpu([MILLRACE, "run", "--fresh", *command], folder), cpu(packing, folder)
            rows.append((each.name, f"{plain:.1f}", f"{packed:.1f}", f"{packed / plain:.2f}"))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    show_table("pack-live", ("", "run, CPU s", "run --pack-to", "share"), rows)
    return 0


def piped(program: list[str], path: Path) -> int:
    """Bytes that a program makes of a file."""
    with path.open("rb") as file:
        return len(subprocess.run([*program, "-c"], stdin=file, stdout=subprocess.PIPE, check=True).stdout)


def cpu(command: list[str], folder: Path) -> float:
    """CPU seconds of a command and all that it starts."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    log = folder / "log"
    with log.open("wb") as words:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=words, env=dict(os.environ))
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: {log.read_text(errors='replace')}")
    print(f"{Path(command[0]).name} {command[1]}: {time.monotonic() - begun:.1f} s {log.read_text(errors='replace')[-200:].strip()}", file=sys.stderr)  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
