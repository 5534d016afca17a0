"""Databases in fragments: is every byte that of the serial run, whatever the options? Through the command line.

``python -m bench.matrix [blastp] [blastn] [hmmsearch] [hmmscan] [--scale 1] [--slice 2/5] [--folder DIR]``

All combinations would take weeks, so a covering set is run: each value of each option meets each value of every other
one at least once. The databases have copies of their entries under other names, so that ties decide what is kept.
A line for each comparison, a summary at the end; the exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from pathlib import Path

from bench import inputs
from bench.results import keep_figures
from millrace.adapters.hmmer.command_line import VOLATILE

N_QUERIES, N_PROFILES = 300, 60

#: What both programs share. The number of records in a batch is odd, so that the last batch is cut.
EVERY = {
    "fragments": ("2", "3", "7", "16"),
    "batch": ("17", "53", "101"),
}
BLAST = {
    "-outfmt": ("5", "6", "7", "0"),
    "-max_target_seqs": ("1", "5", "25", "500", "5000"),
    "-evalue": ("1e-30", "1e-10", "1e-3", "10", "1000"),
}
HMMER = {"options": ("", "-E 1000 --domE 1e-3", "-T 25 --domT 10", "-E 1e-10 --incE 1e-20 --noali")}


def _lists(kind: str) -> dict[str, tuple[str, ...]]:
    """Lists of entries of the databases of `_with_ids`."""
    signs = ("", "negative_")
    named = (f"seqidlist {kind}.ids", "taxids 2,5", f"taxidlist {kind}.taxa")
    return {
        "list": (
            *(f"-db ids -{sign}{option}" for sign in signs for option in named),
            *(f"-db gis -{sign}gilist {kind}.gis" for sign in signs),
        ),
        "-outfmt": BLAST["-outfmt"],
        "-max_target_seqs": ("1", "25", "500"),
        "-evalue": ("1e-10", "1e-3", "10", "1000"),
    }


DIMENSIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "blastp": {**BLAST, "-comp_based_stats": ("0", "1", "2", "3"), **EVERY},
    "blastn": {**BLAST, "-task": ("megablast", "dc-megablast", "blastn"), **EVERY},
    "blastp-lists": {**_lists("prot"), "-comp_based_stats": ("0", "2"), **EVERY},
    "blastn-lists": {**_lists("nucl"), "-task": ("megablast", "blastn"), **EVERY},
    "hmmsearch": {**HMMER, "fragments": EVERY["fragments"], "batch": ("7", "13")},
    "hmmscan": {**HMMER, **EVERY},
}
COMMANDS = {
    "blastp": "blastp -query q.faa -db proteins {options} -out out",
    "blastn": "blastn -query q.fna -db genes {options} -out out",
    "blastp-lists": "blastp -query q.faa {options} -out out",
    "blastn-lists": "blastn -query q.fna {options} -out out",
    "hmmsearch": "hmmsearch {options} -o out --tblout out.tbl --domtblout out.dom q.hmm proteins.fa",
    "hmmscan": "hmmscan {options} -o out --tblout out.tbl --domtblout out.dom profiles.hmm q.faa",
}

#: One process for HMMER: with more, which hits it keeps for a while may differ from one serial run to the next.
ENVIRON = {**os.environ, "HMMER_NCPU": "0"}
#: Of tasks of blastn whose weak matches depend on which queries share a pass: passes that are known.
PASSES = {"BATCH_SIZE": "20000"}


@dataclass(frozen=True)
class Comparison:
    """One command, in so many fragments, with so many records in a batch."""

    command: str
    fragments: str
    batch: str


def covering(dimensions: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Few rows in which each value of each dimension meets each of every other; the same at every call.

    >>> rows = covering({"a": "12", "b": "12", "c": "12"})
    >>> len(rows), {(row["a"], row["c"]) for row in rows} == set(product("12", "12"))
    (4, True)
    """
    rows = [dict(zip(dimensions, values, strict=True)) for values in product(*dimensions.values())]
    # A fixed shuffle: else the rows that win a tie are all alike.
    random.Random(3).shuffle(rows)
    pairs = {id(row): frozenset(combinations(row.items(), 2)) for row in rows}
    missing = set[tuple[tuple[str, str], ...]]().union(*pairs.values())
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(pairs[id(row)] & missing))
        missing -= pairs[id(best)]
        chosen.append(best)
    return chosen


def comparisons(program: str) -> list[Comparison]:
    """What is compared for one program."""
    found = []
    for row in covering(DIMENSIONS[program]):
        options = " ".join(f"{name} {value}" if name[0] == "-" else value for name, value in row.items()
                           if name not in EVERY)  # fmt: skip
        command = " ".join(COMMANDS[program].format(options=options).split())
        found.append(Comparison(command, row["fragments"], row["batch"]))
    return found


def prepare(folder: Path, program: str, scale: float) -> None:
    """Make queries and databases, unless ``folder`` has them already."""
    done = folder / f"ready-{program}-{scale}"
    if done.exists():
        return
    data = inputs.DATA
    step = max(1, round(3 / scale))
    nucleotides = program.startswith("blastn")
    entries = records(data / ("genes_db.fna" if nucleotides else "proteins_db.faa"))
    chosen = entries[::step]
    if nucleotides:
        (folder / "q.fna").write_bytes(b"".join(entries[:: len(entries) // N_QUERIES][:N_QUERIES]))
        chosen += _unclear(entries[1 : 40 * step : step])
    else:
        (folder / "q.faa").write_bytes(b"".join(records(data / "proteins_queries.faa")[:N_QUERIES]))
    kind = "nucl" if nucleotides else "prot"
    if program.endswith("lists"):
        _with_ids(folder, kind, chosen)
    else:
        _database(folder, "genes" if nucleotides else "proteins", kind, _with_copies(chosen))
    if program.startswith("hmm"):
        profiles = re.findall(rb"^HMMER(?:.*\n)+?//\n", (data / "profiles.hmm").read_bytes(), re.M)[:N_PROFILES]
        for name in ("q.hmm", "profiles.hmm"):
            (folder / name).write_bytes(b"".join(profiles))
        subprocess.run(["hmmpress", "-f", "profiles.hmm"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    done.touch()


def records(path: Path) -> list[bytes]:
    """The records of a FASTA file; there are headers with a ``>`` in them."""
    return re.split(rb"(?m)^(?=>)", path.read_bytes())[1:]


def _with_copies(records: list[bytes]) -> list[bytes]:
    """The records, many of them again under other names, in any order."""
    rng = random.Random(4)
    copies = [(record, 1 + number % 4) for number, record in enumerate(records[::7])]
    copies += [(record, 40) for record in rng.sample(records, 12)]
    again = [re.sub(rb"^>\S+", b">copy%d.%d" % (n, k), record)
             for n, (record, count) in enumerate(copies) for k in range(count)]  # fmt: skip
    mixed = [*records, *again]
    rng.shuffle(mixed)
    return mixed


def _unclear(records: list[bytes]) -> Iterator[bytes]:
    """The records with some bases unknown."""
    rng = random.Random(5)
    for number, record in enumerate(records):
        head, _, body = record.partition(b"\n")
        letters = bytearray(body.replace(b"\n", b""))
        for at in rng.sample(range(len(letters)), min(len(letters), 3 + number)):
            letters[at] = ord("N")
        yield b">unclear%d %s\n%s\n" % (number, head[1:], bytes(letters))


def _with_ids(folder: Path, kind: str, records: list[bytes]) -> None:
    """Databases with ids and taxa, and with GIs; and lists of some of them."""
    records = _with_copies(records)
    for name, made, more in (
        ("ids", b"s%d.1", "-taxid_map taxa"),
        ("gis", b"gi|%d|gb|AAA%05d.1|", "-blastdb_version 4"),
    ):
        named = [re.sub(rb"^>\S+", b">" + made % ((number,) * made.count(b"%")), record)
                 for number, record in enumerate(records, 1)]  # fmt: skip
        (folder / "taxa").write_text("".join(f"s{n}.1 {n % 7 + 1}\n" for n in range(1, len(records) + 1)))
        _database(folder, name, kind, named, f"-parse_seqids {more}")
    some = random.Random(6).sample(range(1, len(records) + 1), len(records) // 3)
    (folder / f"{kind}.ids").write_text("".join(f"s{n}.1\n" for n in some))
    (folder / f"{kind}.gis").write_text("".join(f"{n}\n" for n in some))
    (folder / f"{kind}.taxa").write_text("3\n4\n")
    _taxonomy(folder, {taxon: 3 if taxon > 5 else 0 for taxon in range(1, 8)})


def _taxonomy(folder: Path, parents: Mapping[int, int]) -> None:
    """What BLAST+ from 2.15 on needs for lists of taxa, as NCBI's file of that name; earlier ones do not look at it."""
    path = folder / "taxonomy4blast.sqlite3"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE TaxidInfo (taxid INTEGER PRIMARY KEY, parent INTEGER)")
        base.execute("CREATE INDEX TaxidInfoCompositeIdx_parent ON TaxidInfo (parent, taxid)")
        base.executemany("INSERT INTO TaxidInfo VALUES (?, ?)", parents.items())


def _database(folder: Path, name: str, kind: str, records: list[bytes], more: str = "") -> None:
    text = b"".join(records)
    (folder / f"{name}.fa").write_bytes(text)
    # Several volumes, but for taxa: makeblastdb 2.12 fails at them.
    more = more or f"-max_file_sz {max(len(text) // 4, 1)}B"
    command = f"makeblastdb -in {name}.fa -dbtype {kind} -out {name} -title {name} {more}"
    subprocess.run(shlex.split(command), cwd=folder, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _copied(folder: Path) -> Iterator[Path]:
    """A working directory of its own with links to all inputs."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as place:
        for path in folder.iterdir():
            if path.is_file():
                (Path(place) / path.name).symlink_to(path)
        yield Path(place)


def execute(arguments: Sequence[str], folder: Path) -> tuple[list[bytes], float]:
    """What a command writes to its outputs, and its seconds.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    with _copied(folder) as place:
        start = time.monotonic()
        passes = PASSES if {"blastn", "dc-megablast"}.intersection(_values(arguments, "-task")) else {}
        done = subprocess.run(arguments, cwd=place, env=ENVIRON | passes, capture_output=True, check=False)
        seconds = time.monotonic() - start
        if done.returncode:
            print(done.stderr.decode(errors="replace"), file=sys.stderr)
            done.check_returncode()
        found = [(place / name).read_bytes() for name in ("out", "out.tbl", "out.dom") if (place / name).exists()]
        return [_still(text) for text in found] if any("hmm" in word for word in arguments) else found, seconds


def _values(arguments: Sequence[str], option: str) -> list[str]:
    return [value for name, value in pairwise(arguments) if name == option]


def _still(text: bytes) -> bytes:
    """HMMER's outputs without what differs between two serial runs."""
    volatile = [pattern for patterns in VOLATILE.values() for pattern in patterns]
    for pattern in [*volatile, "^# Current dir: .*$"]:
        text = re.sub(pattern.encode(), b"", text, flags=re.M)
    return text


def serial(command: str, folder: Path, scale: float) -> tuple[list[bytes], float]:
    """The outputs of the serial run, computed once for each command."""
    kept = folder / "serial" / hashlib.sha256(f"{scale} {command}".encode()).hexdigest()[:16]
    if not (kept / "seconds").exists():
        outputs, seconds = execute(shlex.split(command), folder)
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for number, output in enumerate(outputs):
            (kept / f"{number}").write_bytes(output)
        (kept / "seconds").write_text(str(seconds))
    outputs = [(kept / f"{number}").read_bytes() for number in range(len(list(kept.iterdir())) - 1)]
    return outputs, float((kept / "seconds").read_text())


def compare(case: Comparison, folder: Path, scale: float, slots: int) -> bool:
    """Whether one comparison has the same bytes; prints a line."""
    expected, alone = serial(case.command, folder, scale)
    millrace = [str(Path(sys.executable).parent / "millrace"), "run", "-q", "--progress", "none"]
    millrace += ["--slots", str(slots), "--fragments", case.fragments, "--batch", case.batch, "--"]
    found, seconds = execute([*millrace, *shlex.split(case.command)], folder)
    same = found == expected
    verdict = "same     " if same else "DIFFERENT"
    size = sum(map(len, expected))
    print(f"{verdict} {case.fragments:>2} fragments, batches of {case.batch:>3}: {case.command}; {size:,} bytes, "
          f"serial {alone:.1f} s, in fragments {seconds:.1f} s", flush=True)  # fmt: skip
    if not same:
        _keep(case, expected, found, folder)
    return same


def _keep(case: Comparison, expected: list[bytes], found: list[bytes], folder: Path) -> None:
    """Keep both outputs to look at."""
    place = folder / "different" / hashlib.sha256(repr(case).encode()).hexdigest()[:8]
    place.mkdir(parents=True, exist_ok=True)
    for number, (a, b) in enumerate(zip(expected, found, strict=True)):
        (place / f"{number}.serial").write_bytes(a)
        (place / f"{number}.fragments").write_bytes(b)
    print(f"          kept in {place}", flush=True)


def main() -> int:
    """Compare what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.matrix", description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"{', '.join(COMMANDS)} (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the databases; 1: a third of the test data")
    parser.add_argument("--slice", default="1/1", metavar="K/N", help="only the K-th of N parts of the comparisons")
    parser.add_argument("--folder", type=Path, help="where inputs and serial outputs are kept for the next slice")
    parser.add_argument("--slots", type=int, default=len(os.sched_getaffinity(0)), help="processes side by side")
    options = parser.parse_args()
    if unknown := [name for name in options.programs if name not in COMMANDS]:
        parser.error(f"{unknown[0]} is not one of {', '.join(COMMANDS)}")
    part, parts = map(int, options.slice.split("/"))
    programs = options.programs or [*COMMANDS]
    different = count = 0
    with tempfile.TemporaryDirectory(prefix="millrace-matrix-") as temporary:
        for program in programs:
            folder = (options.folder or Path(temporary)).absolute() / program
            folder.mkdir(parents=True, exist_ok=True)
            prepare(folder, program, options.scale)
            for case in comparisons(program)[part - 1 :: parts]:
                count += 1
                different += not compare(case, folder, options.scale, options.slots)
    print(f"\n{count} comparisons, {different} different")
    keep_figures("matrix", comparisons=count, different=different)
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
