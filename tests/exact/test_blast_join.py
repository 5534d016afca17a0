"""Every output format of BLAST+ that is joined: joined blocks of batches are the bytes of one serial run.

The adapter is asked how to join, so what it says and what the joiners do are tested together. Batches are cut
as badly as possible: single records, odd counts, a last batch of one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from parameter_choice import some
from session_resources import once

from millrace import _core
from millrace.adapters.blast.adapter import BlastAdapter
from millrace.core.tool_use import InputArg, OutputArg, ToolUse, UserCommand

pytestmark = pytest.mark.skipif(shutil.which("blastp") is None, reason="blastp of BLAST+ is not installed")

Records = list[bytes]


def records(fasta: Path, first: int, count: int) -> Records:
    """Records ``[first, first + count)`` of a file."""
    return cut(fasta.read_bytes())[first : first + count]


def cut(fasta: bytes) -> Records:
    """Cut at every ``>`` that begins a line; what stands before the first belongs to it."""
    parts = re.split(rb"(?m)^(?=>)", fasta)
    if len(parts) > 1 and not parts[0].startswith(b">"):
        parts[:2] = [parts[0] + parts[1]]
    return parts


class Bench:
    """A folder with small databases, in which commands are run serially and in batches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.n_runs = 0

    def understand_command(self, command: list[str]) -> ToolUse:
        exe = shutil.which(command[0])
        if exe is None:
            pytest.skip(f"{command[0]} is not installed")
        return BlastAdapter().understand_command(
            UserCommand(argv=tuple(command), cwd=self.folder, environ=dict(os.environ), exe=Path(exe))
        )

    def understand_queries(self, command: str, queries: Records) -> ToolUse:
        (self.folder / "queries.fa").write_bytes(b"".join(queries))
        return self.understand_command([*command.split(), "-query", "queries.fa"])

    def run(self, use: ToolUse, query: bytes) -> bytes:
        """One ordinary execution, with the input and output of a task."""
        self.n_runs += 1
        batch, out = self.folder / f"batch{self.n_runs}", self.folder / f"out{self.n_runs}"
        batch.write_bytes(query)
        argv = []
        for token in use.argv:
            match token:
                case InputArg():
                    argv.append(f"{token.prefix}{batch}")
                case OutputArg():
                    argv.append(f"{token.prefix}{out}")
                case _:
                    argv.append(token)
        stdin = query if use.inputs[0].stdin else b""
        for _ in range(3 if "-mt_mode" in argv else 1):
            done = subprocess.run(argv, cwd=self.folder, input=stdin, capture_output=True, check=False)
            if done.returncode >= 0:
                break  # else it was killed by a signal, as BLAST 2.12 is now and then in that mode; a run tries again, too
        assert done.returncode == 0, done.stderr.decode()
        written = done.stdout if use.outputs[0].stdout else out.read_bytes()
        batch.unlink()
        out.unlink(missing_ok=True)
        return written

    def check(self, command: str | list[str], queries: Records, sizes: tuple[int, ...]) -> bytes:
        """Compare one serial run with joined batches of each size; returns the serial output."""
        words = command.split() if isinstance(command, str) else command
        (self.folder / "queries.fa").write_bytes(b"".join(queries))
        use = self.understand_command([*words, "-query", "queries.fa"])
        join = use.outputs[0].join
        serial = self.run(use, b"".join(queries))
        units = passes(queries, use.inputs[0].pass_residues)
        for size in sizes:
            batches = [[query for unit in units[at : at + size] for query in unit] for at in range(0, len(units), size)]
            joined = _core.join(join, [(len(batch), self.run(use, b"".join(batch))) for batch in batches])
            assert first_difference(serial, joined) == "", f"batches of {size}, joined by {join}"
        return serial


def passes(queries: Records, residues: int) -> list[Records]:
    """What a batch is made of: whole passes where the adapter asks for them, else single records."""
    if residues == 0:
        return [[query] for query in queries]
    units: list[Records] = []
    room = 0
    for query in queries:
        if room <= 0:
            units.append([])
            room = residues
        units[-1].append(query)
        room -= len(b"".join(query.split(b"\n")[1:]).translate(None, b" \t\r\n-"))
    return units


def first_difference(serial: bytes, joined: bytes) -> str:
    if serial == joined:
        return ""
    pairs = enumerate(zip(serial.split(b"\n"), joined.split(b"\n"), strict=False), 1)
    for number, (mine, other) in pairs:
        if mine != other:
            return f"line {number}: serial {mine[:200]!r}, joined {other[:200]!r}"
    return f"{len(serial)} bytes serially, {len(joined)} joined"


def make_database(folder: Path, name: str, kind: str, content: Records) -> None:
    fasta = folder / f"{name}.fa"
    fasta.write_bytes(b"".join(content))
    command = ["makeblastdb", "-in", fasta.name, "-dbtype", kind, "-out", name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def make_domains(folder: Path, seeds: Records) -> None:
    """A database for rpsblast: one PSSM for each seed."""
    for number, seed in enumerate(seeds):
        (folder / "seed.faa").write_bytes(seed)
        command = f"psiblast -query seed.faa -db proteins -out_pssm d{number}.smp -parse_deflines"
        subprocess.run([*command.split(), "-save_pssm_after_last_round"], cwd=folder, check=True, capture_output=True)
    (folder / "domains.pn").write_text("".join(f"d{number}.smp\n" for number in range(len(seeds))))
    command = "makeprofiledb -in domains.pn -out domains -title domains -threshold 9.82 -scale 100.0 -dbtype rps"
    subprocess.run([*command.split(), "-index", "true"], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="session")
def bench(data: Path, session_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    def make(folder: Path) -> None:
        make_database(folder, "proteins", "prot", records(data / "proteins_db.faa", 0, 600))
        make_database(folder, "genes", "nucl", records(data / "genes_db.fna", 0, 300))
        make_domains(folder, records(data / "proteins_db.faa", 0, 12))

    made = once(session_folder / "blast-join", make)
    return Bench(shutil.copytree(made, tmp_path_factory.mktemp("blast") / "work"))


@pytest.fixture(scope="session")
def proteins(data: Path) -> Records:
    return records(data / "proteins_queries.faa", 0, 11)


@pytest.fixture(scope="session")
def genes(data: Path) -> Records:
    return records(data / "genes_db.fna", 20, 21)


FORMATS = ["0", "5", "6", "7", "8", "10", "11", "12", "15", "16", "18"]
PROGRAMS = {
    "blastp": "blastp -db proteins",
    "blastp-short": "blastp -task blastp-short -db proteins",
    "blastp-subject": "blastp -subject proteins.fa",
    "blastn": "blastn -task blastn -db genes",
    "megablast": "blastn -db genes",
    "dc-megablast": "blastn -task dc-megablast -db genes",
    "blastx": "blastx -db proteins",
    "tblastn": "tblastn -db genes",
    "tblastx": "tblastx -db genes",
    "psiblast": "psiblast -num_iterations 2 -db proteins",
    "rpsblast": "rpsblast+ -db domains",
    "rpstblastn": "rpstblastn -db domains",
}


#: Formats whose head, foot or counters differ from program to program, and the program that has all formats tested.
DIFFERING, ALL_FORMATS = ("0", "5", "7"), ("blastp",)
#: Ways to call a program that write as the program does.
VARIANTS = ("blastp-short", "blastp-subject", "megablast", "dc-megablast")
#: Formats as they are joined: what is joined as another one has its turn with ``-m slow``.
JOINED = [pytest.param(fmt, marks=pytest.mark.slow if fmt in ("10", "12", "18") else []) for fmt in FORMATS]


def programs_and_formats() -> Iterator[Any]:
    """All of them; where a program does nothing of its own in a format, seven in eight have their turn with ``-m slow``."""
    for row, program in enumerate(PROGRAMS):
        for column, fmt in enumerate(FORMATS):
            if fmt == "11" and program in ("blastn", "megablast", "dc-megablast"):
                continue  # refused: tests/support/refused_calls.py
            chosen = program in ALL_FORMATS or (fmt in DIFFERING and program not in VARIANTS) or (row + column) % 8 == 0
            yield pytest.param(program, fmt, marks=[] if chosen else pytest.mark.slow)


@pytest.mark.parametrize(("program", "fmt"), list(programs_and_formats()))
def test_batches_join_to_the_serial_output(
    bench: Bench, proteins: Records, genes: Records, program: str, fmt: str
) -> None:
    queries = proteins[:5] if program.startswith(("blastp", "tblastn", "psiblast", "rpsb")) else genes[:7]
    if program == "rpsblast":
        queries = [*proteins, *proteins[::-1], *proteins, *proteins]  # more than one pass
    evalue = {"tblastx": "1e-20", "blastn": "1e-20", "dc-megablast": "1e-3"}.get(program, "1")
    command = f"{PROGRAMS[program]} -evalue {evalue} -outfmt {fmt} -out result"
    few = bench.understand_queries(command, queries).inputs[0].pass_residues  # then a batch is a pass at least
    bench.check(command, queries, sizes=(1,) if few else (2,))


@pytest.mark.parametrize("fmt", JOINED)
def test_batches_without_any_hit(bench: Bench, proteins: Records, fmt: str) -> None:
    bench.check(f"blastp -db proteins -evalue 1e-80 -outfmt {fmt}", proteins[:5], sizes=(2,))


@pytest.mark.parametrize("fmt", JOINED)
def test_no_records_at_all(bench: Bench, fmt: str) -> None:
    assert bench.check(f"blastp -db proteins -outfmt {fmt}", [], sizes=()) == b""
    use = bench.understand_command(["blastp", "-db", "proteins", "-outfmt", fmt, "-query", "queries.fa"])
    assert _core.join(use.outputs[0].join, [(0, bench.run(use, b""))]) == b""


def test_archive_message_that_tells_a_line_is_refused(bench: Bench) -> None:
    """It is the line of the batch. A file with such a record is refused before, and of a pipe only the first block has it."""
    bench.check("blastp -db proteins -outfmt 11", [], sizes=())
    use = bench.understand_command(["blastp", "-db", "proteins", "-outfmt", "11", "-query", "queries.fa"])
    block = bench.run(use, b">a\nMKVLAAGIVGLLLAQPSFAADVTLKIGVVG-LTGPAAHLGKDIENGVR\n")
    assert b"line" in block
    assert _core.join(use.outputs[0].join, [(1, block)]) == block
    with pytest.raises(ValueError, match="a message tells a line"):
        _core.join(use.outputs[0].join, [(1, block), (1, block)])


@pytest.mark.parametrize(
    "options",
    [
        "-outfmt 0 -html",
        "-outfmt 0 -num_descriptions 2 -num_alignments 1 -line_length 40",
        "-outfmt 0 -sorthits 3 -sorthsps 2 -show_gis",
        "-outfmt 6 -max_target_seqs 5 -max_hsps 1 -culling_limit 2",
        "-outfmt 6 -query_loc 5-20",
        "-outfmt 5 -query_loc 5-20",
        "-outfmt 6 -seg yes -lcase_masking",
        "-outfmt 6 -num_threads 2",
        "-outfmt 6 -num_threads 2 -mt_mode 1",
        "-outfmt 5 -parse_deflines",
        "-outfmt 7 -parse_deflines",
        "-outfmt 15 -parse_deflines",
        "-outfmt=6 -evalue=1",
        "-outfmt 6 -comp_based_stats 0 -ungapped",
    ],
)
def test_options_that_touch_the_output(bench: Bench, proteins: Records, options: str) -> None:
    bench.check(f"blastp -db proteins {options}", proteins[:5], sizes=(3,))


@pytest.mark.parametrize("fmt", ["6 delim=; qseqid sseqid btop", "10 delim=@ qacc std", "7 sseqid evalue", "6 bogus"])
def test_custom_columns(bench: Bench, proteins: Records, fmt: str) -> None:
    bench.check(["blastp", "-db", "proteins", "-outfmt", fmt], proteins[:5], sizes=(3,))


@pytest.fixture(scope="session")
def odd_names(proteins: Records) -> Records:
    """Records without a name, with the name of another, with letters that must be escaped."""
    headers = [b">a", b">", b">dup", b">  ", b">dup", b"> lead", b">a <b> & \"c\" \\ 'd'", b">Query", b">"]
    return [header + b"\n" + record.partition(b"\n")[2] for header, record in zip(headers, proteins[2:], strict=True)]


@pytest.mark.parametrize(
    "fmt",
    some([*FORMATS, "6 qacc qseqid sseqid", "10 delim=:: qseqid qaccver evalue"], "0", "5", "6 qacc qseqid sseqid"),
)
def test_records_without_a_name_keep_their_number(bench: Bench, odd_names: Records, fmt: str) -> None:
    serial = bench.check(["blastp", "-db", "proteins", "-outfmt", fmt], odd_names, sizes=(4,))
    assert b"Query_9" in serial or fmt in ("0", "18")


@pytest.mark.parametrize("fmt", some(FORMATS, "7", "15"))
def test_records_named_like_nameless_ones_are_not_renumbered(bench: Bench, proteins: Records, fmt: str) -> None:
    named = [b">Query_%d x\n" % (9 - n) + record.partition(b"\n")[2] for n, record in enumerate(proteins[:9])]
    bench.check(f"blastp -db proteins -outfmt {fmt}", named, sizes=(4,))


@pytest.mark.parametrize("fmt", JOINED)
def test_messages_about_queries_keep_their_number(bench: Bench, proteins: Records, fmt: str) -> None:
    """BLAST puts ``Query_N title`` before its warnings and shortens both to one length."""
    queries = []
    for n in range(0, 12, 2):
        title = b"abcdefghijklmnopqrstuvwxyz 0123"[: 20 + n] + b' "<q>"'
        queries += [b">%s\nXXXXXXXXXXXXXXXXXXXXXXXXXXXXX\n" % title, proteins[n % 11]]
    bench.check(f"blastp -db proteins -evalue 1e-3 -outfmt {fmt}", queries, sizes=(5,))


@pytest.mark.parametrize("fmt", some(FORMATS, "0", "5", "6", "15"))
def test_line_ends_and_empty_lines(bench: Bench, proteins: Records, fmt: str) -> None:
    queries = [record.replace(b"\n", b"\r\n") + b"\r\n\n" for record in proteins[:5]]
    queries[0] = b"\n\r\n" + queries[0]
    bench.check(f"blastp -db proteins -evalue 1 -outfmt {fmt}", queries, sizes=(2,))


@pytest.mark.parametrize("fmt", JOINED)
def test_record_without_residues_in_a_batch(bench: Bench, proteins: Records, fmt: str) -> None:
    queries = [proteins[0], proteins[1], b">empty\n", proteins[2], b">empty too\n\n", proteins[3]]
    bench.check(f"blastp -db proteins -evalue 1 -outfmt {fmt}", queries, sizes=(4,))


@pytest.mark.slow
def test_tblastx_depends_on_neighbours_except_in_whole_passes(bench: Bench, genes: Records) -> None:
    """Sums of hits are judged by the mean length of the queries of a pass."""
    bench.check("tblastx -db genes -evalue 1e-5 -outfmt 6", genes, sizes=(1, 2))
    use = bench.understand_queries("tblastx -db genes -evalue 1e-5 -outfmt 6", genes)
    assert use.inputs[0].pass_residues == 10_002
    serial = bench.run(use, b"".join(genes))
    assert b"".join(bench.run(use, gene) for gene in genes) != serial


def test_long_proteins_are_kept_in_their_pass(bench: Bench, data: Path) -> None:
    """A pass with a very long protein is cut into chunks, and where depends on what stands before it."""
    parts = [record.partition(b"\n")[2] for record in records(data / "proteins_db.faa", 0, 90)]
    giant = b">giant\n" + b"".join(parts[:60])
    queries = [b">q%d\n" % n + part for n, part in enumerate(parts[60:])]
    queries[7:7] = [giant]
    assert bench.understand_queries("blastp -db proteins -outfmt 6", queries).inputs[0].pass_residues == 10_000
    bench.check("blastp -db proteins -outfmt 6 -evalue 1e-3", queries, sizes=(1,))


def test_psiblast_counts_every_round(bench: Bench, data: Path) -> None:
    queries = records(data / "proteins_queries.faa", 0, 20)
    serial = bench.check("psiblast -db proteins -num_iterations 3 -outfmt 7 -evalue 1e-5", queries, sizes=(3,))
    n_searches = int(re.findall(rb"# BLAST processed (\d+) queries", serial)[-1])
    assert n_searches > len(queries)


def test_pipe_with_a_nameless_record_stops_there(bench: Bench, odd_names: Records) -> None:
    command = UserCommand(
        argv=("blastp", "-db", "proteins", "-outfmt", "6"),
        cwd=bench.folder,
        environ=dict(os.environ),
        exe=Path(str(shutil.which("blastp"))),
        stdin_is_data=True,
    )
    use = BlastAdapter().understand_command(command)
    blocks = [(1, bench.run(use, record)) for record in odd_names]
    with pytest.raises(ValueError, match="record 2 is named Query_1"):
        _core.join(use.outputs[0].join, blocks)
    named = [block for at, block in enumerate(blocks) if at not in (1, 3, 8)]
    assert _core.join(use.outputs[0].join, named) == b"".join(block for _count, block in named)


Break = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    ("fmt", "damage", "says"),
    [
        ("0", lambda block: block.replace(b"600 sequences", b"601 sequences"), "banner differs"),
        ("0", lambda block: block[: block.rindex(b"  Database:")], "no closing statistics"),
        ("0", lambda block: block.replace(b"Window for", b"Window of"), "closing statistics differs"),
        ("0", lambda block: b"x" + block, "banner differs"),
        ("5", lambda block: block[:-20], "foot"),
        ("5", lambda block: block.replace(b"num>1<", b"num>2<", 1), "expected iteration 1, found '2'"),
        (
            "5",
            lambda block: block.replace(b"Iteration_query-ID>Query_1<", b"Iteration_query-ID>Query_3<"),
            "expected Query_1",
        ),
        ("7", lambda block: block[: block.rindex(b"# BLAST")], "does not end with"),
        ("7", lambda block: block + b"more\n", "does not end with"),
        ("15", lambda block: block[: len(block) // 2], "ends without its foot"),
        ("16", lambda block: block.replace(b"Query_1<", b"Query_7<"), "expected Query_1"),
    ],
)
def test_block_of_another_shape_is_an_error(
    bench: Bench, proteins: Records, fmt: str, damage: Break, says: str
) -> None:
    (bench.folder / "queries.fa").write_bytes(proteins[0])
    use = bench.understand_command(["blastp", "-db", "proteins", "-outfmt", fmt, "-query", "queries.fa"])
    block = bench.run(use, proteins[0])
    damaged = damage(block)
    assert damaged != block
    with pytest.raises(ValueError, match=says):
        _core.join(use.outputs[0].join, [(1, block), (1, damaged)])
