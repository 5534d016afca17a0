"""Files that a program writes beside its outputs: a run never ends well with a result that was not kept."""

from __future__ import annotations

import pytest
from shell import Shell

TABLE = "".join(f"{k}\tx\n" for k in range(1, 401))


@pytest.fixture
def filled(shell: Shell) -> Shell:
    (shell.work / "in.tsv").write_text(TABLE)
    (shell.work / "sub").mkdir()
    return shell


RUN = "millrace run --slots 2 --batch 20 --input in.tsv:lines"


@pytest.mark.parametrize(
    "line",
    [
        "awk '{print > \"sub/out.txt\"}' in.tsv",
        "sed -n 'w sub/out.txt' in.tsv",
        "cp in.tsv sub/out.txt",
        "dd if=in.tsv of=sub/out.txt status=none",
        "sh -c 'sort in.tsv > sub/out.txt'",
    ],
)
def test_unsaved_file_below_a_named_folder_is_reported(filled: Shell, line: str) -> None:
    for _ in range(2):  # nothing of the first run counts for the second
        ended = filled.run(f"rm -f sub/out.txt; {RUN} --independent -- {line}")
        assert ended.code == 4 and "writes sub/out.txt, which is no output of this run" in ended.err, ended.shown
        assert "--output sub/out.txt" in ended.err


def test_file_named_as_output_is_kept(filled: Shell) -> None:
    ended = filled.run(f"{RUN} --output sub/out.txt -- cp in.tsv sub/out.txt")
    assert ended.code == 0 and (filled.work / "sub/out.txt").read_text() == TABLE, ended.shown


def test_unwritten_path_in_a_script_is_ignored(filled: Shell) -> None:
    ended = filled.run(f"{RUN} -- awk '$2 != \"sub/none\"' in.tsv")
    assert (ended.code, ended.out) == (0, TABLE), ended.shown


def test_two_outputs_are_not_written_to_one_file(filled: Shell) -> None:
    run = "millrace run --input d --output 'o/{stem}.out' -- cp d 'o/{stem}.out'"
    ended = filled.run(f"mkdir d o; echo 1 > d/f.txt; echo 2 > d/f.fa; {run}")
    assert ended.code == 2 and "d/f.fa and d/f.txt would both be written to o/f.out" in ended.err, ended.shown
    ended = filled.run(f"rm d/f.fa; mkdir o/f.out; {run}")
    assert ended.code == 2 and "o/f.out: is a folder, but the output of d/f.txt is a file" in ended.err, ended.shown
    ended = filled.run(f"rmdir o/f.out; {run}; cat o/f.out")
    assert (ended.code, ended.out) == (0, "1\n"), ended.shown


def test_folder_per_record_is_no_lost_file(filled: Shell) -> None:
    run = "millrace run --input d --output '{stem}/o.txt' -- cp d '{stem}/o.txt'"
    ended = filled.run(f"mkdir d; echo 1 > d/f.txt; echo 2 > d/g.txt; {run}; cat f/o.txt g/o.txt")
    assert (ended.code, ended.out) == (0, "1\n2\n") and "which is not kept" not in ended.err, ended.shown


def test_unnamed_files_end_the_run_if_output_is_empty(filled: Shell) -> None:
    """Beside other output they are reported as not kept."""
    line = 'awk \'{print > "k" ($1 % 3) ".txt"}\' in.tsv'
    for _ in range(2):
        ended = filled.run(f"{RUN} --independent -- {line}")
        assert ended.code == 4 and "and nothing to the outputs of this run: it would be lost" in ended.err, ended.shown
    ended = filled.run(f'{RUN} --independent -- awk \'{{print > "k" ($1 % 3) ".txt"; print}}\' in.tsv')
    assert (ended.code, ended.out) == (0, TABLE) and "which is not kept" in ended.err, ended.shown
