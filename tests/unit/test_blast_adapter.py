"""What the BLAST+ adapter understands of a command, and what it refuses."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from millrace.adapters.blast.adapter import BlastAdapter
from millrace.adapters.blast.command_line import parse_options
from millrace.adapters.blast.output_formats import parse_format
from millrace.adapters.blast.search_path import split_names
from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputArg, OutputArg, RequiredContent, ToolUse, UserCommand

FASTA = b">a\nMKVL\n>b\nMKVLAA\n"


class Desk:
    """A folder with a query file and an empty database, and commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ: dict[str, str] = {}
        self.stdin_is_data = False
        (folder / "q.fa").write_bytes(FASTA)
        for end in ("pin", "phr", "psq"):
            (folder / f"db.{end}").touch()
            (folder / f"ndb.n{end[1:]}").touch()

    def understand_command(self, *argv: str) -> ToolUse:
        command = UserCommand(
            argv=argv,
            cwd=self.folder,
            environ=self.environ,
            exe=Path("/nowhere") / argv[0],
            stdin_is_data=self.stdin_is_data,
        )
        return BlastAdapter().understand_command(command)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_input_and_output_are_taken_from_the_arguments(desk: Desk) -> None:
    use = desk.understand_command(
        "blastp", "-query", "q.fa", "-db", "db", "-outfmt", "6", "-out", "r.tsv", "-evalue", "1"
    )
    assert use.argv == (
        "blastp", "-query", InputArg(index=0), "-db", "db", "-outfmt", "6",
        "-out", OutputArg(index=0), "-evalue", "1",
    )  # fmt: skip
    assert [(i.path, i.format) for i in use.inputs] == [("q.fa", "fasta")]
    assert [(o.name, o.path, o.stdout, o.join) for o in use.outputs] == [("out", "r.tsv", False, "concat")]
    assert use.cost.pass_units == 10_000
    assert 1 not in use.fatal_statuses


def test_equals_sign_and_flags(desk: Desk) -> None:
    use = desk.understand_command("blastp", "-lcase_masking", "-query=q.fa", "-db=db", "-out=r.tsv")
    assert use.argv == (
        "blastp",
        "-lcase_masking",
        InputArg(index=0, prefix="-query="),
        "-db=db",
        OutputArg(index=0, prefix="-out="),
    )


@pytest.mark.parametrize("out", [(), ("-out", "-")])
def test_without_out_the_output_is_stdout(desk: Desk, out: tuple[str, ...]) -> None:
    use = desk.understand_command("blastp", "-query", "q.fa", "-db", "db", *out)
    assert use.outputs[0].stdout and use.outputs[0].path == "-" and use.outputs[0].name == "stdout"
    assert not any(isinstance(token, OutputArg) for token in use.argv)


@pytest.mark.parametrize("query", [(), ("-query", "-")])
def test_without_query_the_input_is_stdin(desk: Desk, query: tuple[str, ...]) -> None:
    desk.stdin_is_data = True
    use = desk.understand_command("blastp", "-db", "db", *query, "-outfmt", "6")
    assert use.inputs[0].path == "-"
    assert use.inputs[0].stdin and InputArg(index=0) not in use.argv
    assert use.outputs[0].join == "blast-tabular:columns=1,delim=09"


def test_missing_query_at_a_terminal_is_refused(desk: Desk) -> None:
    with pytest.raises(RefusedError, match="no queries"):
        desk.understand_command("blastp", "-db", "db")


@pytest.mark.parametrize(
    ("fmt", "join"),
    [
        ("0", "blast-report"),
        ("5", "blast-xml"),
        ("6", "concat"),
        (" 006 qseqid", "concat"),
        ("7", "blast-comments:columns=0"),
        ("10 delim=; std", "concat"),
        ("15", "blast-json"),
        ("8", "blast-seqalign"),
        ("11", "blast-archive"),
        ("12", "blast-seqalign-json"),
        ("18", "concat"),
        ("16", "blast-xml2"),
    ],
)
def test_each_format_has_its_join(desk: Desk, fmt: str, join: str) -> None:
    assert desk.understand_command("blastp", "-query", "q.fa", "-db", "db", "-outfmt", fmt).outputs[0].join == join


@pytest.mark.parametrize(
    ("fmt", "join"),
    [
        ("6", "blast-tabular:columns=1,delim=09,unnamed"),
        ("6 delim=:: qacc qseqid evalue", "blast-tabular:columns=2,delim=3a3a,unnamed"),
        ("10", "blast-tabular:columns=1,delim=2c,unnamed"),
        ("7", "blast-comments:columns=1,delim=09"),
        ("6 sseqid evalue", "concat"),
    ],
)
@pytest.mark.parametrize("nameless", [b">\nMK\n", b">  \nMK\n", b">\r\nMK\r\n", b">"])
def test_records_without_a_name_run_on(desk: Desk, fmt: str, join: str, nameless: bytes) -> None:
    (desk.folder / "q.fa").write_bytes(FASTA + nameless)
    assert desk.understand_command("blastp", "-query", "q.fa", "-db", "db", "-outfmt", fmt).outputs[0].join == join


def test_ambiguous_nameless_records_are_refused(desk: Desk) -> None:
    (desk.folder / "q.fa").write_bytes(FASTA + b">\nMK\n>Query_7 x\nMK\n")
    with pytest.raises(RefusedError, match="record 3 has no name"):
        desk.understand_command("blastp", "-query", "q.fa", "-db", "db", "-outfmt", "6")
    (desk.folder / "q.fa").write_bytes(b">\nMK\n")
    with pytest.raises(RefusedError, match=r"record 1 of q\.fa has no name"):
        desk.understand_command("blastp", "-query", "q.fa", "-db", "db", "-outfmt", "6 evalue qseqid")
    with pytest.raises(RefusedError, match="record 1 has no name"):
        desk.understand_command("blastp", "-query", "q.fa", "-db", "db", "-outfmt", "5", "-parse_deflines")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-version"],
        ["-h"],
        ["-help"],
        ["-remote"],
        ["-import_search_strategy", "x"],
        ["-export_search_strategy", "x"],
        ["-out_pssm", "x"],
        ["-in_pssm", "x"],
        ["-in_msa", "x"],
        ["-outfmt", "1"],
        ["-outfmt", "4"],
        ["-outfmt", "9"],
        ["-outfmt", "13"],
        ["-outfmt", "14"],
        ["-outfmt", "17 SQ"],
        ["-outfmt", "x"],
        ["-outfmt", "5", "-mt_mode", "1"],
        ["--outfmt", "6"],
        ["extra"],
        ["-evalue", "1", "-evalue", "2"],
        ["-evalue"],
    ],
)
def test_refusal_has_a_reason_and_an_alternative(desk: Desk, arguments: list[str]) -> None:
    with pytest.raises(RefusedError) as error:
        desk.understand_command("psiblast", "-query", "q.fa", "-db", "db", *arguments)
    assert error.value.message and error.value.hint


def test_hint_for_an_unknown_format_lists_the_joined_ones(desk: Desk) -> None:
    with pytest.raises(RefusedError) as error:
        desk.understand_command("blastp", "-query", "q.fa", "-db", "db", "-outfmt", "99")
    named = re.findall("[0-9]+", error.value.hint)
    for fmt in map(str, range(19)):
        if fmt in named:
            desk.understand_command("blastp", "-query", "q.fa", "-db", "db", "-outfmt", fmt, "-out", "o")
            continue
        with pytest.raises(RefusedError):
            desk.understand_command("blastp", "-query", "q.fa", "-db", "db", "-outfmt", fmt, "-out", "o")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"MKVLAAGI\n", "expected '>', found 'M'"),
        (b"P12345\nQ9XYZ1\n", "list of accessions"),
        (b"\x1f\x8b\x08\x00", "compressed"),
        (b">a\nMK\n>?100\nMK\n", "gap"),
    ],
)
def test_uncuttable_queries_are_refused(desk: Desk, content: bytes, says: str) -> None:
    (desk.folder / "q.fa").write_bytes(content)
    with pytest.raises(RefusedError, match=says):
        desk.understand_command("blastp", "-query", "q.fa", "-db", "db")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\n \r\n>a\nMK\n"])
def test_empty_lines_before_the_first_record_are_skipped(desk: Desk, content: bytes) -> None:
    (desk.folder / "q.fa").write_bytes(content)
    assert desk.understand_command("blastp", "-query", "q.fa", "-db", "db").inputs[0].path == "q.fa"


@pytest.mark.parametrize(
    ("program", "fmt", "content", "is_refused"),
    [
        ("blastp", "5", ">a\nMK\n>b prot\u00e9ine\nMK\n", True),
        ("blastp", "16", ">a\nMK\n>b prot\u00e9ine\nMK\n", False),
        ("blastp", "11", ">a\nMK\n>b\nM-K\n", True),
        ("blastp", "11", ">a b-c\n;d-e\nmXBZJUO*\r\n\nM K\n", False),
        ("blastp", "5", ">a\nMK\n>b\nM-K\n", False),
        ("tblastx", "11", ">a\nACGTRYKMN\n>b\nACGTE\n", True),
        ("tblastx", "11", ">a\nACGTRYKMN\n", False),
    ],
)
def test_records_that_change_their_batch_are_refused(
    desk: Desk, program: str, fmt: str, content: str, is_refused: bool
) -> None:
    """A title that BLAST cannot write in the head of XML; a warning in an archive that tells the line in the file."""
    (desk.folder / "q.fa").write_bytes(content.encode())
    command = (program, "-query", "q.fa", "-db", "ndb" if program == "tblastx" else "db", "-outfmt", fmt)
    if not is_refused:
        desk.understand_command(*command)
        return
    with pytest.raises(RefusedError, match=r"q\.fa: (the title of )?record 2 has"):
        desk.understand_command(*command)


def test_missing_query_or_database_has_the_error_of_blast(desk: Desk) -> None:
    with pytest.raises(RefusedError, match=r'Argument "query"\. File is not accessible:  `nofile'):
        desk.understand_command("blastp", "-query", "nofile", "-db", "db")
    desk.environ["BLASTDB"] = "/a:/b"
    with pytest.raises(RefusedError) as error:
        desk.understand_command("blastp", "-query", "q.fa", "-db", "nope")
    assert error.value.message == (
        "BLAST Database error: No alias or index file found for protein database [nope] "
        f"in search path [{desk.folder}:/a:/b:]"
    )
    with pytest.raises(RefusedError, match="Either a BLAST database or subject"):
        desk.understand_command("blastp", "-query", "q.fa")
    with pytest.raises(RefusedError, match=r"nucleotide database \[db\]"):
        desk.understand_command("tblastn", "-query", "q.fa", "-db", "db")


def test_files_of_all_databases_are_listed(desk: Desk) -> None:
    elsewhere = desk.folder / "elsewhere"
    elsewhere.mkdir()
    for name in ("vol.00.pin", "vol.00.psq", "vol.01.pin", "unrelated.pin", "vol.00.nin"):
        (elsewhere / name).touch()
    (elsewhere / "vol.pal").write_text('TITLE x\nDBLIST "vol.00" vol.01\n')
    (elsewhere / "ids.txt").touch()
    (desk.folder / "part.pal").write_text("TITLE y\nDBLIST vol\nSEQIDLIST ids.txt\n")
    (desk.folder / ".ncbirc").write_text("[BLAST]\nBLASTDB=elsewhere\n")
    use = desk.understand_command("blastp", "-query", "q.fa", "-db", "db part")
    found = {str(path.relative_to(desk.folder)) for path in use.databases}
    assert found == {
        "db.pin", "db.phr", "db.psq", "part.pal", "elsewhere/vol.pal", "elsewhere/vol.00.pin",
        "elsewhere/vol.00.psq", "elsewhere/vol.01.pin", "elsewhere/ids.txt",
    }  # fmt: skip


def test_the_work_of_a_start_follows_the_size_of_the_database(desk: Desk) -> None:
    def start(*words: str) -> int:
        return desk.understand_command(*words, "-query", "q.fa").cost.start_units

    assert start("blastp", "-db", "db") == 0  # it is empty
    os.truncate(desk.folder / "db.psq", 7_000_000)
    assert start("blastp", "-db", "db") == 200
    assert start("blastp", "-db", "db db") == 200  # each file counts once
    assert start("blastp", "-db", "db", "-evalue", "1e-5") == 200
    assert start("blastp", "-db", "db", "-task", "blastp-fast") == 0  # which is far faster
    os.truncate(desk.folder / "ndb.nsq", 7_000_000)
    assert start("tblastn", "-db", "ndb") == 250
    assert start("blastn", "-db", "ndb") == 0


def test_subject_and_id_lists_are_shared_files(desk: Desk) -> None:
    use = desk.understand_command("blastp", "-query", "q.fa", "-subject", "q.fa")
    assert use.databases == (desk.folder / "q.fa",)


def test_rpsblast_of_debian_has_a_plus(desk: Desk) -> None:
    assert desk.understand_command("rpsblast+", "-query", "q.fa", "-db", "db").adapter == "blast"


@pytest.mark.parametrize(
    ("command", "residues"),
    [
        ("blastp -db db", 0),
        ("blastp -db db -outfmt 11", 10_000),
        ("blastp -db db -ungapped -comp_based_stats 0", 10_000),
        ("blastx -db db", 10_002),
        ("tblastn -db ndb", 20_000),
        ("tblastx -db ndb", 10_002),
        ("rpstblastn -db db", 10_002),
        ("rpsblast -db db", 10_000),
        ("blastn -db ndb", 0),
        ("psiblast -db db -outfmt 11", 0),
    ],
)
def test_passes_are_kept_whole_where_neighbours_matter(desk: Desk, command: str, residues: int) -> None:
    assert desk.understand_command(*command.split(), "-query", "q.fa").inputs[0].pass_residues == residues


@pytest.mark.parametrize(("program", "stays"), [("blastp", True), ("rpsblast", True), ("psiblast", False)])
def test_empty_query_stays_with_its_neighbour(desk: Desk, program: str, stays: bool) -> None:
    """Except for psiblast."""
    assert desk.understand_command(program, "-query", "q.fa", "-db", "db").inputs[0].content == (
        RequiredContent() if stays else None
    )


def test_passes_are_kept_whole_for_long_or_unknown_proteins(desk: Desk) -> None:
    (desk.folder / "long.fa").write_bytes(b">a\nMK\n>b\n" + b"MKVLAAGI" * 1300 + b"\n>c\nMK\n")
    assert desk.understand_command("blastp", "-db", "db", "-query", "long.fa").inputs[0].pass_residues == 10_000
    desk.stdin_is_data = True
    assert desk.understand_command("blastp", "-db", "db").inputs[0].pass_residues == 10_000


@pytest.mark.parametrize(
    "command",
    [
        "blastn -db ndb -outfmt 11",
        "blastn -db ndb -ungapped",
        "blastn -db ndb -sum_stats true",
        "blastn -task blastn -db ndb",
        "blastn -task dc-megablast -db ndb -evalue 1e-5",
        "blastx -db db -query_loc 1-30",
        "blastx -db db -mt_mode 1 -num_threads 2",
        "deltablast -db db",
    ],
)
def test_unknown_passes_are_refused(desk: Desk, command: str) -> None:
    (desk.folder / "q.fa").write_bytes(FASTA + b">c\n" + b"ACGT" * 2000 + b"\n")
    with pytest.raises(RefusedError) as error:
        desk.understand_command(*command.split(), "-query", "q.fa")
    assert error.value.hint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"a", b"a"),
        (b"a x", b"A y"),
        (b"sp|P1.1|X", b"sp|P1.2|Y"),
        (b"lcl|a", b"a"),
        (b"gi|3|gb|Q1", b"gb|Q1|"),
    ],
)
def test_parsed_names_must_differ(desk: Desk, one: bytes, other: bytes) -> None:
    (desk.folder / "q.fa").write_bytes(b">z\nMK\n>%s\nMK\n>%s\nMK\n" % (one, other))
    with pytest.raises(RefusedError, match="records 2 and 3 have the same id"):
        desk.understand_command("blastp", "-query", "q.fa", "-db", "db", "-parse_deflines")
    assert desk.understand_command("blastp", "-query", "q.fa", "-db", "db").outputs[0].join == "blast-report"
    (desk.folder / "q.fa").write_bytes(FASTA)
    use = desk.understand_command("blastp", "-query", "q.fa", "-db", "db", "-parse_deflines", "-outfmt", "5")
    assert use.outputs[0].join == "blast-xml:parsed"


@pytest.mark.parametrize("outfmt", ["0", "5", "6", "7", "15"])
def test_names_that_are_parsed_cannot_come_from_a_pipe(desk: Desk, outfmt: str) -> None:
    desk.stdin_is_data = True
    with pytest.raises(RefusedError, match="cannot be looked at before") as caught:
        desk.understand_command("blastp", "-db", "db", "-parse_deflines", "-outfmt", outfmt)
    assert "-query FILE" in caught.value.hint
    desk.understand_command("blastp", "-db", "db", "-outfmt", outfmt)


def test_options_are_parsed_as_by_blast() -> None:
    assert parse_options(("blastp", "-remote", "-query", "-", "-outfmt=6 std", "-new", "x")) == {
        "remote": "",
        "query": "-",
        "outfmt": "6 std",
        "new": "x",
    }


def test_columns_are_parsed_as_by_blast() -> None:
    assert parse_format("6 sseqid std sseqid").columns[:3] == ("sseqid", "qaccver", "saccver")
    assert parse_format("10").delim == ","
    assert parse_format("6 qseqid delim=;").delim == "\t"
    assert parse_format("7 delim=||").delim == "||"
    assert len(parse_format("6 bogus").columns) == 12


def test_names_of_databases() -> None:
    assert split_names('nr "my db" env_nr') == ["nr", "my db", "env_nr"]
