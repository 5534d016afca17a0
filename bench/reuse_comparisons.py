"""Compare runs with a store of searches, whose database, queries, options and tools change from run to run, with serial runs.

    python -m bench.reuse_comparisons --seeds 3 --tools DIR/sid/bin

Each history has one store. In each of its steps the database changes (entries are added, removed, changed, copied or put into
another order, volumes and ids come and go), and so do the queries; then four commands run: the second has other options, the third is
the first again, and so is the fourth, with other queries. The first steps use the installed tools, the next ones those of ``--tools``, the last one the
installed ones again. Databases have ties: copies, and entries that differ only beyond their alignments. A query is one
comparison: of all bytes of its run. The same seeds make the same databases.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from bench import inputs
from bench.results import show_table
from millrace.core.errors import ExitCode

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / "support")]

from changed_databases import CHANGES, GeneMaker, SequenceMaker, make_database, write_records  # noqa: E402
from stored_runs import KnownQueries, count_known, read_without_date  # noqa: E402

#: What may happen to the queries.
QUERY_CHANGES = ("add", "remove", "copy", "shuffle", "none")

#: Options of BLAST, of which each command has one of each kind.
BLAST_OPTIONS = (
    ("-outfmt 0", "-outfmt 5", "-outfmt 6", "-outfmt 7", "-outfmt 15", "-outfmt 10", "-outfmt '6 qaccver saccver evalue bitscore btop'"),
    ("", "-max_target_seqs 1", "-max_target_seqs 2", "-max_target_seqs 25", "-max_target_seqs 500"),
    ("-evalue 1e-20", "-evalue 1e-3", "-evalue 1e-3", "", "-evalue 11", "-evalue 1e-6"),
)  # fmt: skip

#: Options of HMMER.
HMMER_OPTIONS = (
    ("-o report", "-o report --tblout table", "-o report --domtblout domains", "-o report --noali --tblout table"),
    ("", "-E 1e-5", "-T 20", "-E 1000 --domE 1000"),
    ("", "", "-Z 5000", "--incE 1e-8", "--nobias"),
)

OUTPUTS = ("report", "table", "domains")

#: What is counted, in queries but for the runs.
COLUMNS = ("runs", "queries", "candidates known", "results known", "not known", "differ", "refused")


class ComparedProgram(NamedTuple):
    """A program whose runs are compared."""

    #: Kind of its database: ``prot`` or ``nucl`` of BLAST, ``fasta``, or ``models``, pressed.
    database: str
    #: Options of which each command has one of each kind, then those that stay the same for a step.
    options: Sequence[Sequence[str]]
    fixed: Sequence[str] = ("",)


PROGRAMS = {
    "blastp": ComparedProgram("prot", BLAST_OPTIONS, ("", "", "-seg yes", "-comp_based_stats 0", "-max_hsps 1", "-culling_limit 2", "-qcov_hsp_perc 40", "-subject_besthit")),
    "blastn": ComparedProgram("nucl", BLAST_OPTIONS, ("", "", "-task dc-megablast -evalue 1e-5", "-task blastn -evalue 1e-6", "-max_hsps 1", "-perc_identity 90", "-strand plus")),
    "blastx": ComparedProgram("prot", BLAST_OPTIONS, ("", "", "-seg no", "-comp_based_stats 0", "-max_hsps 1", "-strand minus")),
    "tblastn": ComparedProgram("nucl", BLAST_OPTIONS, ("", "", "-seg no", "-comp_based_stats 0", "-max_hsps 1", "-db_gencode 4")),
    "psiblast": ComparedProgram("prot", BLAST_OPTIONS, ("", "", "-seg yes", "-comp_based_stats 0", "-comp_based_stats 1", "-max_hsps 1", "-inclusion_ethresh 1")),
    "hmmscan": ComparedProgram("models", HMMER_OPTIONS),
    "hmmsearch": ComparedProgram("fasta", HMMER_OPTIONS),
    "phmmer": ComparedProgram("fasta", HMMER_OPTIONS),
}  # fmt: skip


class ComparedRun(NamedTuple):
    """A run with a store, beside the serial one."""

    version: str
    n_queries: int
    known: KnownQueries
    #: ``same``, ``refused``, or what is wrong.
    end: str


class ModelMaker:
    """Profiles, and changes of a file of them, as ``SequenceMaker`` has them for sequences."""

    def __init__(self, seed: int, models: Sequence[str]) -> None:
        self.random, self._models = random.Random(seed), models

    def make_relative(self) -> str:
        """Make a profile that differs from one of the file."""
        lines = self.random.choice(self._models).split("\n")
        at = self.random.choice([at for at, line in enumerate(lines) if line.endswith(" - - -")])
        number, *values = lines[at].split()
        values[:20] = self.random.sample(values[:20], 20)
        lines[at] = " ".join([number, *values])
        return "\n".join(lines)

    def make_entries(self, number: int) -> list[str]:
        """Choose profiles."""
        return self.random.sample(self._models, number)

    def make_ties(self, entry: str, number: int) -> list[str]:
        """Make copies of a profile."""
        return [entry] * number

    def change_entries(self, entries: list[str], change: str) -> list[str]:
        """See ``SequenceMaker.change_entries``."""
        entries, places = list(entries), self.random.sample(range(len(entries)), 2)
        if change == "add":
            entries += [self.make_relative() for _ in places]
        elif change == "remove":
            entries = [entry for at, entry in enumerate(entries) if at not in places]
        elif change == "change":
            entries[places[0]] = self.make_relative()
        elif change == "copy":
            entries.append(entries[places[0]])
        elif change == "shuffle":
            self.random.shuffle(entries)
        return entries


def write_models(path: Path, models: Sequence[str]) -> None:
    """Write profiles; copies get names of their own."""
    seen: Counter[str] = Counter()
    with path.open("w") as file:
        for model in models:
            name = model.split("\nNAME  ", 1)[1].split("\n", 1)[0]
            seen[name] += 1
            more = f".{seen[name]}" if seen[name] > 1 else ""
            file.write(model.replace(f"\nNAME  {name}\n", f"\nNAME  {name}{more}\n", 1))


class ChangingSearch:
    """A folder with a store, and with a database and queries that change.

    Args:
        n_entries: Entries of the database; of profiles it has a tenth.
    """

    def __init__(self, folder: Path, program: str, seed: int, n_entries: int, n_queries: int) -> None:
        self.folder, self.program, self.about = folder, program, PROGRAMS[program]
        self._choose = random.Random(f"{program} {seed}")
        self._maker: SequenceMaker | ModelMaker
        if program in ("hmmscan", "hmmsearch", "phmmer"):
            profiles = [f"{each}//\n" for each in (inputs.DATA / "profiles.hmm").read_text().split("//\n")[:-1]]
            proteins, models = SequenceMaker(seed, ancestors=_emit_consensus()), ModelMaker(seed, profiles)
            self._maker = models if program == "hmmscan" else proteins
            self._make_query = models.make_relative if program == "hmmsearch" else proteins.make_relative
        elif program in ("blastx", "tblastn"):
            genes = GeneMaker(seed)
            self._maker = genes if program == "tblastn" else SequenceMaker(seed)
            self._make_query = genes.make_relative if program == "blastx" else genes.make_protein
        else:
            self._maker = SequenceMaker(seed, self.about.database)
            self._make_query = self._maker.make_relative
        entries = self._maker.make_entries(n_entries // (10 if self.about.database == "models" else 1))
        self._choose.shuffle(entries)
        ties = [each for entry in entries[:4] for each in self._maker.make_ties(entry, 5)]
        self._entries = [*entries, *ties]
        self._choose.shuffle(self._entries)
        self._queries = [self._make_query() for _ in range(n_queries)]

    def choose_changes(self, number: int) -> list[str]:
        """Choose changes of the database that follow each other."""
        return self._choose.choices(CHANGES, k=number)

    def list_commands(self, change: str) -> Iterator[list[str]]:
        """Change the database and the queries; yield commands, whose options differ."""
        self._entries = self._maker.change_entries(self._entries, change)
        self._write_database(change)
        self._change_queries(self._choose.choice(QUERY_CHANGES))
        fixed = self._choose.choice(self.about.fixed)
        first, other = ([*shlex.split(fixed), *self._choose_options(fixed)] for _ in range(2))
        for options in (first, other, first):
            yield self._fill_words(options)
        self._change_queries(self._choose.choice(QUERY_CHANGES))
        yield self._fill_words(first)

    def _choose_options(self, fixed: str) -> Iterator[str]:
        for options in self.about.options:
            chosen = shlex.split(self._choose.choice(options))
            if not chosen or chosen[0] not in fixed:
                yield from chosen

    def _fill_words(self, options: list[str]) -> list[str]:
        match self.program:
            case "hmmscan" | "hmmsearch":
                names = ("db.hmm", "queries") if self.program == "hmmscan" else ("queries", "db.fasta")
                return [self.program, *options, *names]
            case "phmmer":
                return [self.program, *options, "queries", "db.fasta"]
            case _:
                return [self.program, "-query", "queries", "-db", "db", *options, "-out", "report"]

    def _write_database(self, change: str) -> None:
        for path in self.folder.glob("db*"):
            path.unlink()
        entries, kind = self._entries, self.about.database
        if kind == "models":
            write_models(self.folder / "db.hmm", entries)
            subprocess.run(["hmmpress", "db.hmm"], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        elif kind == "fasta":
            write_records(self.folder / "db.fasta", entries, "e")
        else:
            ids = change == "ids" or self._choose.random() < 0.3
            make_database(self.folder, "db", entries, kind, ids=ids, volumes=3 if change == "volumes" else 1)

    def _change_queries(self, change: str) -> None:
        queries, n = self._queries, max(1, len(self._queries) // 10)
        places = self._choose.sample(range(len(queries)), n)
        if change == "add":
            for at in places:
                queries.insert(at, self._make_query())
        elif change == "copy":
            queries += [queries[at] for at in places]
        elif change == "remove" and len(queries) > 3 * n:
            self._queries = [query for at, query in enumerate(queries) if at not in places]
        elif change == "shuffle":
            self._choose.shuffle(queries)
        if self.program == "hmmsearch":
            write_models(self.folder / "queries", self._queries)
        else:
            write_records(self.folder / "queries", self._queries, "q")

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self._queries)


def _emit_consensus() -> list[str]:
    words = ["hmmemit", "-c", str(inputs.DATA / "profiles.hmm")]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return ["".join(record.split("\n")[1:]).upper() for record in done.stdout.split(">")[1:]]


def compare_history(search: ChangingSearch, tools: Sequence[str], n_steps: int) -> Iterator[ComparedRun]:
    """Run all commands of a history, and compare each run.

    Args:
        tools: Folders with other releases of the programs.
        n_steps: Changes of the database for each release.
    """
    for folder in (*["", *tools], *([""] if tools else [])):
        environ = {**os.environ, "PATH": f"{folder}{os.pathsep * bool(folder)}{os.environ['PATH']}"}
        version = _read_version(search.program, environ)
        for change in search.choose_changes(n_steps):
            for words in search.list_commands(change):
                yield ComparedRun(version, search.n_queries, *compare_run(search.folder, words, environ))


def _read_version(program: str, environ: Mapping[str, str]) -> str:
    option = "-h" if PROGRAMS[program].options is HMMER_OPTIONS else "-version"
    done = subprocess.run([program, option], env=environ, check=True, capture_output=True, text=True)
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout)
    assert found
    return found[0]


def compare_run(folder: Path, words: Sequence[str], environ: Mapping[str, str]) -> tuple[KnownQueries, str]:
    """Run a command with the store, then as it is; return what was known, and ``same``, ``refused`` or what is wrong."""
    run = [sys.executable, "-m", "millrace", "run", "--slots", "2", "--store", "store", "--batch", "5", "--", *words]
    done = subprocess.run(run, cwd=folder, env=environ, capture_output=True, text=True, timeout=600)
    if done.returncode == ExitCode.REFUSED:
        return KnownQueries(), "refused"
    ours = _take_outputs(folder)
    subprocess.run(words, cwd=folder, env=environ, check=True, capture_output=True)
    serial = _take_outputs(folder)
    if done.returncode:
        return KnownQueries(), f"exit code {done.returncode}: {done.stderr}"
    return count_known(done.stderr), "same" if ours == serial else f"other bytes: {done.stderr}"


def _take_outputs(folder: Path) -> Mapping[str, bytes]:
    """Read and remove the outputs of a run."""
    found = {name: read_without_date(folder / name) for name in OUTPUTS if (folder / name).exists()}
    for name in found:
        (folder / name).unlink()
    return found


def main(arguments: list[str]) -> int:
    """Compare, and print the table; 1 if bytes differ."""
    parser = argparse.ArgumentParser(prog="python -m bench.reuse_comparisons", description=__doc__)
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--seeds", type=int, default=3, help="histories of each program")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=4, help="changes of the database for each release")
    parser.add_argument("--entries", type=int, default=300)
    parser.add_argument("--queries", type=int, default=25)
    parser.add_argument("--tools", nargs="*", default=[], help="folders with programs of other releases")
    asked = parser.parse_args(arguments)
    for folder, program in product(asked.tools, asked.programs):
        if not shutil.which(program, path=folder):
            parser.error(f"{folder}: has no {program}")
    counted: dict[tuple[str, str], Counter[str]] = {}
    for program, seed in product(asked.programs, range(asked.first, asked.first + asked.seeds)):
        with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
            os.environ["XDG_STATE_HOME"] = f"{name}/state"
            search = ChangingSearch(Path(name), program, seed, asked.entries, asked.queries)
            for run in compare_history(search, asked.tools, asked.steps):
                _count_run(counted.setdefault((program, run.version), Counter()), run)
                if run.end not in ("same", "refused"):
                    print(f"{program}, seed {seed}: {run.end}", file=sys.stderr)
        print(
            f"{program}, seed {seed}: {_format_counts(sum(counted.values(), Counter()))}", file=sys.stderr, flush=True
        )
    total: Counter[str] = sum(counted.values(), Counter())
    rows = [(*key, *_format_counts(found)) for key, found in [*sorted(counted.items()), (("all", ""), total)]]
    show_table("reuse_comparisons", ("program", "version", *COLUMNS), rows)
    return int(total["differ"] > 0)


def _format_counts(counted: Counter[str]) -> list[str]:
    return [f"{counted[column]:,}" for column in COLUMNS]


def _count_run(counted: Counter[str], run: ComparedRun) -> None:
    counted["runs"] += 1
    counted["queries"] += run.n_queries
    match run.end:
        case "same":
            counted["candidates known"] += run.known.candidates
            counted["results known"] += run.known.results
            counted["not known"] += run.n_queries - sum(run.known)
        case "refused":
            counted["refused"] += run.n_queries
        case _:
            counted["differ"] += run.n_queries


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
