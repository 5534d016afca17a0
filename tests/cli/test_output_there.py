"""A program that does not simply write over its output: what is there is not lost in silence."""

from __future__ import annotations

import pytest
from shell import Shell

RUN = "millrace run -q --format lines --batch 5 --input in.txt --output o.txt --"

WRITES = 'cat "$1" > "$2"'
ADDS = 'cat "$1" >> "$2"'
OTHERS = {
    "adds": (ADDS, "writes something else"),
    "leaves": ('[ -s "$2" ] || cat "$1" > "$2"', "writes something else"),
    "refuses": ('set -C; cat "$1" > "$2"', "fails"),
    "writes_into": ('cat "$1" 1<> "$2" >&1', "writes something else"),
}


@pytest.fixture(autouse=True)
def inputs(shell: Shell) -> None:
    shell.run("seq 30 > in.txt; seq 900 940 > before.txt")


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("before", ["cp before.txt o.txt", "seq 30000000 30140000 > o.txt", "ln -s before.txt o.txt"])
def test_an_output_that_is_not_written_over_refuses_the_run(shell: Shell, name: str, before: str) -> None:
    body, words = OTHERS[name]
    shell.tool("tool", body)
    shell.run(f"{before}; cp o.txt copy.txt")
    done = shell.run(f"{RUN} tool in.txt o.txt")
    assert done.code == 5 and f"o.txt: is there already, and tool {words}" in done.err and "rm o.txt" in done.err, (
        done.shown
    )
    assert shell.run("cmp o.txt copy.txt").code == 0
    # What the hint says.
    again = shell.run(f"rm o.txt; {RUN} tool in.txt o.txt; cmp in.txt o.txt")
    assert again.code == 0, again.shown
    over = shell.run(f"cp before.txt o.txt; {RUN.replace('-q', '-q --verify 0')} tool in.txt o.txt && cmp in.txt o.txt")
    assert over.code == 0, over.shown


def test_one_record_is_enough(shell: Shell) -> None:
    shell.tool("tool", ADDS)
    shell.run("echo one > in.txt; cp before.txt o.txt")
    done = shell.run(f"{RUN} tool in.txt o.txt")
    assert done.code == 5 and "is there already" in done.err, done.shown
    again = shell.run(f"rm o.txt; {RUN} tool in.txt o.txt; cmp in.txt o.txt")
    assert again.code == 0, again.shown


@pytest.mark.parametrize("before", ["cp before.txt o.txt", "true", "touch o.txt"])
def test_an_output_that_is_written_over_is(shell: Shell, before: str) -> None:
    shell.tool("tool", WRITES)
    done = shell.run(f"{before}; {RUN} tool in.txt o.txt; cmp in.txt o.txt")
    assert done.code == 0, done.shown


@pytest.mark.parametrize("body", [WRITES, ADDS])
def test_what_a_run_itself_has_written_is_not_taken_for_what_was_there(shell: Shell, body: str) -> None:
    """It is interrupted after the first results are written, and resumed."""
    shell.tool(
        "slow",
        f"""
        case $(cat "$1") in *30*) until [ -e "$MARK/go" ]; do sleep 0.1; done;; esac
        {body}""",
    )
    first = shell.run(f"{RUN} slow in.txt o.txt & pid=$!; until [ -s o.txt ]; do sleep 0.1; done; kill $pid; wait $pid")
    assert first.code == 143, first.shown
    done = shell.run(f'touch "$MARK/go"; {RUN} slow in.txt o.txt; cmp in.txt o.txt')
    assert done.code == 0, done.shown
