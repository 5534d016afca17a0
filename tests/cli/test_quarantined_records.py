"""What is kept of a record that failed: its inputs, and a command that shows the failure again."""

from __future__ import annotations

import pytest
from shell import Shell

RUN = "millrace run -q --verify 0 --slots 1 --batch 2 --retries 0 --max-quarantined 9"


@pytest.fixture
def tool(shell: Shell) -> Shell:
    (shell.work / "in.fa").write_text(">a\nMKV\n>b\nMAA\n>c bad\nMLL\n")
    shell.tool("picky", 'text=$(cat); case $text in *bad*) echo "no: $1" >&2; exit 1;; esac; printf "%s\\n" "$text"')
    return shell


def test_non_utf_8_arguments_are_kept_unchanged(tool: Shell) -> None:
    ended = tool.run(f"{RUN} --format fasta -- picky \"$(printf 'x\\351')\" < in.fa > out")
    assert ended.code == 3 and "Traceback" not in ended.err, ended.shown
    [kept] = tool.work.glob("*/quarantine/record-3")
    assert b"no: x" in (kept / "stderr.txt").read_bytes()
    assert b"x\xe9" in (kept / "command.sh").read_bytes()


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_inputs_of_equal_name_are_kept_apart(tool: Shell, ending: str) -> None:
    tool.tool(
        "both",
        f'{"z" * bool(ending)}cat "$1" "$2" > "$3"; ! grep -q bad "$3" || {{ echo "main.fa and x.fa" >&2; exit 1; }}',
    )
    tool.run("mkdir a b; cp in.fa a/x.fa; sed s/M/W/ in.fa > b/x.fa")
    if ending:
        tool.run("gzip a/x.fa b/x.fa")
    one, other = f"a/x.fa{ending}", f"b/x.fa{ending}"
    ended = tool.run(f"{RUN} --input {one} --input {other} --output out -- both {one} {other} out main.fa")
    assert ended.code == 3, ended.shown
    [kept] = tool.work.glob("*/quarantine/record-3")
    assert sorted(path.name for path in kept.iterdir()) == sorted(
        [f"x.fa{ending}", f"2-x.fa{ending}", "command.sh", "stderr.txt"]
    )
    shown = tool.run(f"sh {kept}/command.sh; cat out")
    assert ">c bad\nMLL\n>c bad\nWLL\n" in shown.out, shown.shown
    assert (kept / "command.sh").read_text().rstrip().endswith("out main.fa")
