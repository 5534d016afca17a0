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


def test_many_failures_alike_stop_the_run_and_the_same_command_resumes(tool: Shell) -> None:
    ended = tool.run(f"{RUN} -- third < many.fa > out")
    assert ended.code == 4, ended.shown
    assert "third failed for 10 of" in ended.err and "no GA line in the model" in ended.err, ended.shown
    assert "--max-quarantined" in ended.err
    [run_dir] = tool.run_dirs()
    assert len(list((tool.work / run_dir / "quarantine").iterdir())) == 9
    tool.tool("third", "exec cat")  # repaired: but another program now
    ended = tool.run(f"{RUN} --fresh -- third < many.fa > out; cmp out many.fa")
    assert ended.code == 0, ended.shown


def test_the_user_may_allow_as_many_as_there_are(tool: Shell) -> None:
    ended = tool.run(f"{RUN} --max-quarantined 20 -- third < many.fa > out; grep -c '^>' out")
    assert ended.out == "40\n", ended.shown
    ended = tool.run(f"{RUN} --fresh --max-quarantined 10% -- third < many.fa > out")
    assert ended.code == 4, ended.shown
