"""Prodigal with ``-p meta`` on one file: the bytes of the serial command in each of its formats, or a refusal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from shell import Shell

from millrace.adapters.registry import find_adapter
from millrace.core.errors import RefusedError
from millrace.core.tool_use import UserCommand

N = 33

#: Options of the main output.
FORMATS = ["", "-f gbk", "-f gff", "-f sco"]


@pytest.fixture
def genome(shell: Shell, data: Path) -> Shell:
    """Contigs of a real genome, among them some in which there is no gene, and one with a name that looks like a number."""
    if not shutil.which("prodigal"):
        pytest.skip("no prodigal")
    records = (data / "contigs.fna").read_text().split(">")[1:]
    contigs = ["".join(text.split("\n")[1:]) for text in records][:12]
    parts = [contigs[k % 12][(k // 12) * 9000 :][: 300 if k % 5 == 4 else 2500] for k in range(N)]
    names = [f"c{k} ID=7_{k};seqnum=3;" for k in range(N)]
    names[5] = "Seq_5"
    (shell.work / "c.fna").write_text("".join(f">{name}\n{part}\n" for name, part in zip(names, parts, strict=True)))
    return shell


def line_of(form: str, folder: str) -> str:
    return f"prodigal -q -p meta {form} -i c.fna -o {folder}/o -a {folder}/a -d {folder}/d -s {folder}/s"


@pytest.mark.parametrize("batch", ["7", *(pytest.param(each, marks=pytest.mark.slow) for each in ("1", "13", "auto"))])
@pytest.mark.parametrize("form", FORMATS)
def test_meta_on_one_file_writes_serial_bytes(genome: Shell, form: str, batch: str) -> None:
    done = genome.run(
        f"mkdir serial ours; {line_of(form, 'serial')}; millrace run --batch {batch} -- {line_of(form, 'ours')}"
    )
    assert done.code == 0, done.shown
    for name in "oads":
        serial = (genome.work / "serial" / name).read_bytes()
        assert serial and (genome.work / "ours" / name).read_bytes() == serial, name


def test_meta_by_single_records_writes_serial_bytes(genome: Shell) -> None:
    """To standard output."""
    line = "prodigal -q -f gff -P meta -I c.fna -c -m"
    done = genome.run(f"{line} > serial; millrace run --batch 1 --slots 2 -- {line} > ours")
    assert done.code == 0, done.shown
    serial = (genome.work / "serial").read_bytes()
    assert serial.count(b"seqnum=") == N + sum(b"seqnum=3;" in row for row in serial.splitlines())
    assert (genome.work / "ours").read_bytes() == serial


@pytest.mark.parametrize(
    ("record", "words"),
    [(">\nACGTACGATCGATCGATCGATCGACTAGCATCAG", "has no name"), (">empty", "quarantined record 5 (empty)")],
)
def test_meta_quarantines_records_without_name_or_sequence(genome: Shell, record: str, words: str) -> None:
    text = (genome.work / "c.fna").read_text().split(">")[1:9]
    (genome.work / "c.fna").write_text("".join(f">{each}" for each in text[:4]) + record + "\n" + "".join(f">{each}" for each in text[4:]))  # fmt: skip
    ended = genome.run("millrace run --batch 8 -- prodigal -q -p meta -f gff -i c.fna -o out")
    assert ended.code == 3 and words in ended.err and "1 record quarantined" in ended.err, ended.shown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("prodigal -i c.fna", "trains on the whole input"),
        ("prodigal -p single -i c.fna -o out", "trains on the whole input"),
        ("prodigal -p m -i c.fna", "-p m is not known"),
        ("prodigal -p meta -f 3 -i c.fna", "-f 3 is not known"),
        ("prodigal -p meta -i c.fna -o /dev/null -a a", "is not a file of its own"),
        ("prodigal -p meta -i c.fna -o out -a out", "is not a file of its own"),
        ("prodigal -p meta -i c.fna -t training", "-t"),
        ("prodigal -p meta -i c.gbk", "is not FASTA"),
        ("prodigal -p meta -x -i c.fna", "not known"),
    ],
)
def test_inexact_command_is_refused(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "c.fna").write_text(">a\nACGT\n")
    (tmp_path / "c.gbk").write_text("LOCUS       a\nDEFINITION  a\nORIGIN\n        1 acgt\n//\n")
    command = UserCommand(argv=tuple(line.split()), cwd=tmp_path, exe=Path("/bin/true"), environ={})
    with pytest.raises(RefusedError) as refused:
        find_adapter("prodigal").understand_command(command)
    assert words in str(refused.value), refused.value
