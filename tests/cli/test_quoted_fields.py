"""Tables with fields in quotes, which may hold line breaks, cut by lines."""

from __future__ import annotations

import shutil

import pytest
from shell import Shell

N = 400
LINES = ("csvformat -D ; t.csv", "csvcut -c 1,3 t.csv", "mlr --icsv --ojsonl --implicit-csv-header cat t.csv")


def table(note: str) -> str:
    return "".join(f'{k},"a, b {k}",{note if k == N // 2 else "x"}\n' for k in range(N))


@pytest.mark.parametrize("line", LINES, ids=[line.split()[0] for line in LINES])
def test_a_field_over_several_lines_is_not_cut(shell: Shell, line: str) -> None:
    if not shutil.which(line.split()[0]):
        pytest.skip(f"{line.split()[0]} is not installed")
    line = line.replace(";", "';'")
    path = shell.work / "t.csv"
    path.write_text(table("y"))
    run = f"millrace run --slots 2 --batch 50 --input t.csv:lines -- {line}"
    serial, ended = shell.run(line), shell.run(run)
    assert (ended.code, ended.out) == (0, serial.out), ended.shown
    path.write_text(table('"' + "note\n" * 70 + '"'))
    serial, ended = shell.run(line), shell.run(run)
    assert serial.code == 0, serial.shown
    assert ended.code == 1, ended.shown
    assert "t.csv: a field in quotes goes over the end of a line in records 201-250" in ended.err
    assert serial.out.startswith(ended.out), "what is written is right"
    # Where no batch ends within the field, all is well.
    ended = shell.run(run.replace("--batch 50", "--batch 5000"))
    assert (ended.code, ended.out) == (0, serial.out), ended.shown
