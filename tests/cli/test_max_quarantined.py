"""A tool that fails for many records stops the run, with its own words."""

from __future__ import annotations

import pytest
from shell import Shell

#: Fails for a third of the records, all alike.
TOOL = """text=$(cat); case $text in *bad*) echo 'Error: no GA line in the model' >&2; exit 1;; esac; printf '%s\\n' "$text" """
INPUT = """for i in $(seq 20); do printf '>r%s\\nMKV\\n>q%s\\nMAA\\n>s%s bad\\nMLL\\n' $i $i $i; done > many.fa"""
RUN = "millrace run -q --verify 0 --slots 1 --batch 2 --retries 0 --format fasta"


@pytest.fixture
def tool(shell: Shell) -> Shell:
    shell.tool("third", TOOL)
    assert shell.run(INPUT).code == 0
    return shell


def test_many_equal_failures_stop_the_run_and_it_resumes(tool: Shell) -> None:
    ended = tool.run(f"{RUN} -- third < many.fa > out")
    assert ended.code == 4, ended.shown
    assert "third failed for 10 of" in ended.err and "no GA line in the model" in ended.err, ended.shown
    assert "--max-quarantined" in ended.err
    [run_dir] = tool.run_dirs()
    assert len(list((tool.work / run_dir / "quarantine").iterdir())) == 9
    tool.tool("third", "exec cat")  # repaired: but another program now
    ended = tool.run(f"{RUN} --fresh -- third < many.fa > out; cmp out many.fa")
    assert ended.code == 0, ended.shown


def test_late_fault_stops_the_run_and_it_resumes(tool: Shell) -> None:
    """A tool that fails at everything from some record on: nothing but its failures comes any more."""
    tool.run("for i in $(seq 1000); do echo good; done > lines; for i in $(seq 200); do echo bad; done >> lines")
    tool.tool(
        "later",
        "text=$(cat); [ -e $MARK/ok ] || case $text in *bad*) echo 'no database' >&2; exit 1;; esac; echo \"$text\"",
    )
    line = "millrace run -q --verify 0 --slots 1 --retries 0 --format lines --batch 20"
    ended = tool.run(f"{line} -- later < lines > out")
    assert ended.code == 4 and "no database" in ended.err, ended.shown
    [run_dir] = tool.run_dirs()
    # The fiftieth failure in a row stops it. With two slots, some may come before the last good batch ends.
    assert len(list((tool.work / run_dir / "quarantine").glob("*/record-*"))) == 49
    assert "the same command with --retry-quarantined resumes" in ended.err
    assert tool.run(f"touch $MARK/ok; {line} --retry-quarantined -- later < lines > out; cmp out lines").code == 0


def test_user_sets_the_number_of_quarantined_records(tool: Shell) -> None:
    ended = tool.run(f"{RUN} --max-quarantined 20 -- third < many.fa > out; grep -c '^>' out")
    assert ended.out == "40\n", ended.shown
    ended = tool.run(f"{RUN} --fresh --max-quarantined 10% -- third < many.fa > out")
    assert ended.code == 4, ended.shown
