"""Tables with fields in quotes, which may hold line breaks."""

from __future__ import annotations

import pytest
from parameter_choice import some
from shell import Shell

N = 400
LINES = {
    "csvformat": ("csvformat -D ; t.csv", "lines"),
    "csvcut": ("csvcut -c 1,3 t.csv", "csv"),
    "mlr": ("mlr --icsv --ojsonl --implicit-csv-header cat t.csv", "lines"),
}


def table(note: str) -> str:
    return "".join(f'{k},"a, b {k}",{note if k == N // 2 else "x"}\n' for k in range(N))


@pytest.mark.parametrize("name", some(LINES, "csvcut", "mlr"))
def test_field_over_several_lines_is_not_cut(shell: Shell, name: str) -> None:
    line, form = LINES[name]
    line = line.replace(";", "';'")
    (shell.work / "t.csv").write_text(table('"' + "note\n" * 70 + '"'))
    serial, ended = shell.run(line), shell.run(f"millrace run --slots 2 --batch 150 --input t.csv:{form} -- {line}")
    assert serial.code == 0 and serial.out.count("note") == 70, serial.shown
    assert (ended.code, ended.out) == (0, serial.out), ended.shown


def test_a_table_as_spreadsheets_write_it(shell: Shell) -> None:
    """With a byte order mark, semicolons, and line breaks of two characters."""
    rows = "".join(f'"gene; {k}";{k},5;"two\r\nlines"\r\n' for k in range(N))
    (shell.work / "t.csv").write_bytes(b"\xef\xbb\xbf" + rows.encode())
    line = "csvformat -d ';' t.csv"
    serial = shell.run(line)
    ended = shell.run(f"millrace run --slots 2 --batch 150 --input t.csv:csv -- {line}")
    assert serial.code == 0 and serial.out.startswith('gene; 0,"0,5"'), serial.shown
    assert (ended.code, ended.out) == (0, serial.out), ended.shown


def test_failing_rows_are_quarantined_one_by_one(shell: Shell) -> None:
    """On the way down to the row that fails, no cut is within a field."""
    fails = shell.work / "fails"
    fails.write_text('#!/bin/sh\ncat "$1"\n! grep -q bad "$1"\n')
    fails.chmod(0o755)
    (shell.work / "t.csv").write_text('a,"x\ny\nz"\n' * 50 + 'b,"bad\n\n1"\n' + 'c,"u\nv"\n' * 50)
    ended = shell.run("millrace run --slots 2 --batch 64 --input t.csv:csv -- ./fails t.csv")
    assert ended.code == 3, ended.shown
    assert ended.out == 'a,"x\ny\nz"\n' * 50 + 'c,"u\nv"\n' * 50
    assert "record 51" in ended.err, ended.shown


def test_a_quote_in_the_middle_of_a_field_stops_the_run(shell: Shell) -> None:
    (shell.work / "t.csv").write_text("a,b\n" * 100 + 'a,5" pipe\n' + "a,b\n" * 100)
    ended = shell.run("millrace run --slots 2 --batch 64 --input t.csv:csv -- cat t.csv")
    assert ended.code == 1, ended.shown
    assert "t.csv:101: a quote in the middle of a field" in ended.err, ended.shown
