"""Programs that write to their input, of which each task has but a part."""

from __future__ import annotations

import pytest
from shell import Shell

#: Changes the second half of its input where that is, and counts what it finds there.
IN_PLACE = "import sys; f = open(sys.argv[1], 'r+'); f.seek(4); f.write('x'); f.seek(0); print(f.read().count('x'))"


@pytest.mark.parametrize(
    ("line", "tool"),
    [
        ("cp /dev/null in.tsv", "cp"),
        ("in-place s/a/b/ in.tsv", "in-place"),
        ("in-place s/a/b/ {here}/in.tsv", "in-place"),
        (f'python3 -c "{IN_PLACE}" in.tsv', "python3"),
    ],
)
def test_program_that_edits_its_input_is_stopped(shell: Shell, line: str, tool: str) -> None:
    """The batch is a copy of the input, so the change would be lost."""
    table = "".join(f"a{k}\n" for k in range(400))
    (shell.work / "in.tsv").write_text(table)
    shell.tool("in-place", 'exec sed -i "$@"')
    line = line.format(here=shell.work)
    name = line.rpartition(" ")[2]
    ended = shell.run(f"millrace run --slots 2 --batch 20 --input {name}:lines -- {line}")
    assert (ended.code, ended.out) == (4, ""), ended.shown
    assert f"{tool} cannot do this work: it changes its input {name}\n" in ended.err, ended.shown
    assert "write the result to standard output or to another file" in ended.err
    assert (shell.work / "in.tsv").read_text() == table


def test_a_program_may_remove_its_input(shell: Shell) -> None:
    (shell.work / "in.tsv").write_text("a\n" * 400)
    shell.tool("takes", 'cat "$1"; rm "$1"')
    ended = shell.run("millrace run --slots 2 --batch 20 --input in.tsv:lines -- takes in.tsv")
    assert (ended.code, ended.out) == (0, "a\n" * 400), ended.shown
    assert (shell.work / "in.tsv").exists()
