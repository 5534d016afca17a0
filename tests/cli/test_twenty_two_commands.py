"""Twenty-two commands that were wrong with exit 0 when each part of the input gave a part of the output.

Each is typed as a new user would, with the real program: it has to give the serial bytes, or be refused before it starts,
or be stopped. The same programs then run under a name that tells nothing, where only the check of the bytes can know.
"""

from __future__ import annotations

import random
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from session_resources import once
from shell import Ended, Shell


@dataclass(frozen=True)
class Everyday:
    """A command whose results on parts of its input do not make its result on the whole.

    Args:
        line: As it is typed behind ``millrace run OPTIONS --``.
        given: The options, as the first refusal's hint has them.
        ends: Exit code: 2 before it starts, 5 by the check.
        says: Part of the message.
        instead: What the hint says, as (options, line): this gives the serial bytes. None: only a pipe behind, or to run it serially.
        output: Where it writes; empty: standard output.
        unnamed: Exit code under a name that tells nothing; None: it takes long, and has a test of its own.
    """

    name: str
    line: str
    given: str
    ends: int
    says: str
    instead: tuple[str, str] | None = None
    output: str = ""
    unnamed: int | None = 5

    @property
    def tool(self) -> str:
        return self.line.split()[0]


# fmt: off
EVERYDAY = (
    Everyday("prodigal", "prodigal -q -f gff -i contigs.fa", "--input contigs.fa", 2, "trains on the whole input", unnamed=4),
    Everyday("prodigal-meta", "prodigal -q -p meta -f gff -i contigs.fa", "--input contigs.fa", 2, "numbers its sequences"),
    Everyday("bwa", "bwa mem -v 1 ref.fa r1.fq", "--input r1.fq", 2, "draws among equal hits", ("", "minimap2 -ax sr --frag=no ref.fa r1.fq")),
    Everyday("bwa-paired", "bwa mem -v 1 ref.fa r1.fq r2.fq", "--input r1.fq --input r2.fq", 2, "learns the insert sizes",
             ("", "minimap2 -ax sr ref.fa r1.fq r2.fq")),
    Everyday("minimap2", "minimap2 -ax sr ref.fa r1.fq", "--input r1.fq", 2, "--frag=no", ("", "minimap2 -ax sr --frag=no ref.fa r1.fq")),
    Everyday("bowtie2", "bowtie2 -x bt -U r1.fq", "--input r1.fq", 2, "--no-hd", ("--input r1.fq", "bowtie2 --no-hd -x bt -U r1.fq")),
    Everyday("mmseqs", "mmseqs easy-search q.faa db.faa out tmp --num-iterations 2", "--input q.faa --output out", 2, "searches with profiles",
             output="out", unnamed=None),
    Everyday("lastal", "lastal lastdb q.faa", "--input q.faa", 2, "counts the queries", ("", "lastal lastdb q.faa")),
    Everyday("exonerate", "exonerate q.faa db.faa", "--input q.faa", 2, "orders the hits of all queries"),
    Everyday("cd-hit", "cd-hit -i q.faa -o out", "--input q.faa --output out", 2, "compares all records", output="out"),
    Everyday("fasttree", "fasttree -quiet -nt aligned.fa", "--input aligned.fa", 2, "infers one tree"),
    Everyday("seqkit-stats", "seqkit stats seqs.fa", "--input seqs.fa", 2, "| seqkit"),
    Everyday("seqkit-header", "seqkit fx2tab -H seqs.fa", "--input seqs.fa", 2, "--join header",
             ("--input seqs.fa --join header", "seqkit fx2tab -H seqs.fa")),
    Everyday("seqkit-range", "seqkit range -r 1:5 seqs.fa", "--input seqs.fa", 2, "| seqkit"),
    Everyday("seqkit-nr", "seqkit replace -p .+ -r s{nr} seqs.fa", "--input seqs.fa", 2, "with {nr}"),
    Everyday("seqtk", "seqtk rename seqs.fa x", "--input seqs.fa", 2, "| seqtk"),
    Everyday("bedtools", "bedtools merge -i a.bed", "--input a.bed:lines", 2, "| bedtools"),
    Everyday("awk-NR", "awk '{print NR, $1}' t.tsv", "--input t.tsv:lines", 2, "not certain that this script"),
    # Nothing in these words can be known: the check alone finds them.
    Everyday("awk-n", "awk '{print ++n, $1}' t.tsv", "--input t.tsv:lines", 2, "--independent"),
    Everyday("awk-file", "awk -f number.awk t.tsv", "--input t.tsv:lines", 2, "--independent"),
    Everyday("sed", "sed = t.tsv", "--input t.tsv:lines", 2, "| sed"),
    Everyday("csv", "to-csv t.tsv", "--input t.tsv:lines", 5, "--join csv", ("--input t.tsv:lines --join csv", "to-csv t.tsv")),
)
# fmt: on


@pytest.fixture
def desk(shell: Shell, session_folder: Path) -> Shell:
    """Reads, contigs, proteins and tables, with the indexes that the tools want."""
    made = once(session_folder / "everyday", _make)
    shutil.copytree(made, shell.work, dirs_exist_ok=True)
    shell.tool("to-csv", 'echo name,n; tr "\\t" , < "$1"')
    return shell


def _make(folder: Path) -> None:
    drawn = random.Random(22)
    for name, text in {**_nucleotides(drawn), **_proteins(drawn), **_tables(drawn)}.items():
        (folder / name).write_text(text)
    for line in ("bwa index ref.fa", "bowtie2-build -q ref.fa bt", "lastdb -p lastdb db.faa"):
        words = shlex.split(line)
        if shutil.which(words[0]):
            subprocess.run(words, cwd=folder, check=True, capture_output=True)


def _nucleotides(drawn: random.Random) -> dict[str, str]:
    def dna(n: int) -> str:
        return "".join(drawn.choices("ACGT", k=n))

    def gene() -> str:
        codons = (dna(3) for _ in range(drawn.randrange(80, 300)))
        return f"AGGAGG{dna(6)}ATG{''.join(each for each in codons if each not in ('TAA', 'TAG', 'TGA'))}TAA{dna(60)}"

    repeat = dna(400)
    reference = "".join(dna(600) + repeat for _ in range(20))
    reads: list[list[str]] = [[], []]
    for k in range(600):
        at = drawn.randrange(len(reference) - 500)
        insert = reference[at : at + drawn.randrange(250, 450)]
        mate = insert[:-81:-1].translate(str.maketrans("ACGT", "TGCA"))
        for side, bases in zip(reads, (insert[:80], mate), strict=True):
            side.append(f"@read{k}\n{bases}\n+\n{'I' * 80}\n")
    ancestor = dna(200)
    aligned = ("".join(drawn.choice("ACGT") if drawn.random() < 0.15 else c for c in ancestor) for _ in range(16))
    return {
        "ref.fa": f">chr1\n{reference}\n",
        "r1.fq": "".join(reads[0]),
        "r2.fq": "".join(reads[1]),
        "contigs.fa": "".join(f">contig{k}\n{''.join(gene() for _ in range(4))}\n" for k in range(30)),
        "aligned.fa": "".join(f">t{k}\n{each}\n" for k, each in enumerate(aligned)),
        "seqs.fa": "".join(f">s{k} n{k}\n{dna(drawn.randrange(30, 120))}\n" for k in range(200)),
    }


def _proteins(drawn: random.Random) -> dict[str, str]:
    letters = "ACDEFGHIKLMNPQRSTVWY"
    entries = ["".join(drawn.choices(letters, k=150)) for _ in range(40)]
    near = (
        "".join(drawn.choice(letters) if drawn.random() < 0.1 else c for c in drawn.choice(entries)) for _ in range(80)
    )
    return {
        "db.faa": "".join(f">p{k}\n{each}\n" for k, each in enumerate(entries)),
        "q.faa": "".join(f">q{k}\n{each}\n" for k, each in enumerate(near)),
    }


def _tables(drawn: random.Random) -> dict[str, str]:
    starts = [20 * k + drawn.randrange(20) for k in range(300)]
    return {
        "a.bed": "".join(f"chr1\t{at}\t{at + drawn.randrange(10, 60)}\tf{k}\n" for k, at in enumerate(starts)),
        "t.tsv": "".join(f"r{k}\t{drawn.randrange(40)}\n" for k in range(300)),
        "number.awk": "{ print ++line, $1 }\n",
    }


def need(line: str) -> None:
    tool = line.split()[0].removeprefix("bare-")
    if tool != "to-csv" and not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")


def serially(desk: Shell, line: str, output: str = "") -> bytes:
    """What the tool by itself writes; nothing of it is left."""
    before = set(desk.work.iterdir())
    done = desk.run(f"{line} > serial.out")
    assert done.code == 0, done.shown
    written = (desk.work / (output or "serial.out")).read_bytes()
    assert written
    for path in set(desk.work.iterdir()) - before:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return written


def by_millrace(desk: Shell, options: str, line: str, output: str = "") -> tuple[Ended, bytes]:
    """How it ends, and what is then in its output."""
    ended = desk.run(f"millrace run --slots 2 {options} -- {line} > out.stdout", seconds=300)
    path = desk.work / (output or "out.stdout")
    return ended, path.read_bytes() if path.exists() else b""


def each(condition: Callable[[Everyday], object] = bool) -> pytest.MarkDecorator:
    cases = [case for case in EVERYDAY if condition(case)]
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


@each()
def test_inexact_command_is_refused_or_stopped(desk: Shell, case: Everyday) -> None:
    need(case.line)
    ended, written = by_millrace(desk, case.given, case.line, case.output)
    assert (ended.code, written) == (case.ends, b""), ended.shown
    assert case.says in ended.err and "\nhint: " in ended.err, ended.shown


@each(lambda case: case.instead)
def test_suggested_command_writes_serial_bytes(desk: Shell, case: Everyday) -> None:
    assert case.instead is not None
    options, line = case.instead
    need(line)
    serial = serially(desk, line)
    ended, written = by_millrace(desk, options, line)
    assert ended.code == 0, ended.shown
    assert "cut elsewhere, all bytes equal" in ended.err or line.startswith(("minimap2", "lastal")), ended.shown
    assert written == serial


def under_another_name(desk: Shell, case: Everyday) -> tuple[Ended, bytes]:
    need(case.line)
    desk.tool("my-tool", f'exec {case.tool} "$@"')
    return by_millrace(desk, case.given, f"my-tool{case.line.removeprefix(case.tool)}", case.output)


@each(lambda case: case.unnamed)
def test_check_detects_a_renamed_inexact_tool(desk: Shell, case: Everyday) -> None:
    ended, written = under_another_name(desk, case)
    assert (ended.code, written) == (case.unnamed, b""), ended.shown
    assert ended.code != 5 or "verification failed: my-tool gave other bytes" in ended.err, ended.shown


@pytest.mark.slow
@each(lambda case: case.unnamed is None)
def test_check_detects_a_slow_renamed_inexact_tool(desk: Shell, case: Everyday) -> None:
    ended, written = under_another_name(desk, case)
    assert not written and ended.code in (4, 5), ended.shown
    # mmseqs leaves a folder for what is in between, which nobody has named.
    assert ended.code == 5 or "which is no output of this run" in ended.err, ended.shown


@pytest.mark.parametrize("name", ["bwa", "bwa-paired"])
def test_check_behind_a_join_detects_ties_and_insert_sizes(desk: Shell, name: str) -> None:
    """The header is out of the way: what is left is what bwa learns from the reads beside."""
    case = next(case for case in EVERYDAY if case.name == name)
    need(case.line)
    desk.tool("my-tool", 'exec bwa "$@"')
    ended, written = by_millrace(desk, f"{case.given} --join sam", case.line.replace("bwa", "my-tool", 1))
    assert (ended.code, written) == (5, b""), ended.shown
    assert "learnt from the whole input" in ended.err, ended.shown


def test_exonerate_with_a_query_a_file(desk: Shell) -> None:
    need("exonerate")
    desk.tool("one-query", 'exonerate --verbose 0 "$1" db.faa > "$2"')
    entries = (desk.work / "q.faa").read_text().split(">")[1:9]
    (desk.work / "queries").mkdir()
    for k, entry in enumerate(entries):
        (desk.work / "queries" / f"{k}.fa").write_text(f">{entry}")
    serial = desk.run("for k in 0 1 2 3 4 5 6 7; do exonerate --verbose 0 queries/$k.fa db.faa; done")
    ended, _ = by_millrace(desk, "--input queries --output 'hits/{stem}.txt'", "one-query queries 'hits/{stem}.txt'")
    assert ended.code == 0, ended.shown
    assert "".join((desk.work / "hits" / f"{k}.txt").read_text() for k in range(8)) == serial.out


def test_there_are_twenty_two() -> None:
    assert len(EVERYDAY) == len({case.name for case in EVERYDAY}) == 22
    assert sum(case.ends == 5 for case in EVERYDAY) == 1, "found by the check alone"
