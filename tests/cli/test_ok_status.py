"""Exit statuses besides 0 that are results: of programs that are known for it, and of those of which the user says so."""

from __future__ import annotations

import shutil

import pytest
from shell import Shell

#: Lines of the input, and of a batch.
N, BATCH = 60, 4

RUN = f"millrace run --slots 2 --batch {BATCH} --format lines"
IS_RESULT = "exit status 1, which is a result; the exit code of the run does not show it"

#: Finds, as grep does; what it starts may still be at work when it ends.
FINDER = 'grep -w "$1"; code=$?; (sleep 0.2; echo more) & exit $((code * 7))'


@pytest.fixture
def filled(shell: Shell) -> Shell:
    (shell.work / "in.tsv").write_text("".join(f"r{k}\t{k}\n" for k in range(N)))
    return shell


@pytest.mark.parametrize("name", ["r3", f"r{N - 1}", "r", "nobody"])
def test_grep_fails_in_no_batch_without_a_match(filled: Shell, name: str) -> None:
    ended = filled.run(f"{RUN} -- grep -w {name} < in.tsv")
    assert (ended.code, ended.out) == (0, filled.run(f"grep -w {name} in.tsv").out), ended.shown
    assert f"{IS_RESULT} ({N // BATCH - bool(ended.out)} times)" in ended.err, ended.shown


@pytest.mark.parametrize("where", [0, N // 2, N - 1])
def test_nul_byte_in_input_of_grep_stops_the_run(filled: Shell, where: int) -> None:
    lines = [f"r{k}\t{k}\n".encode() for k in range(N)]
    lines[where] = b"s\0\n"
    (filled.work / "in.tsv").write_bytes(b"".join(lines))
    ended = filled.run(f"{RUN} --verify 0 -- grep r < in.tsv")
    assert ended.code == 1 and "standard input: there is a NUL byte in records" in ended.err, ended.shown
    ended = filled.run(f"{RUN} --verify 0 -- grep -a r < in.tsv")
    assert ended.code == 0 and ended.out == filled.run("grep -a r in.tsv").out, ended.shown


def test_unwritten_binary_match_of_grep_is_a_failure(filled: Shell) -> None:
    (filled.work / "in.tsv").write_bytes(b"".join(b"r%d \xff\n" % k if k == 30 else b"r%d\n" % k for k in range(N)))
    ended = filled.run(f"export LC_ALL=C.UTF-8; {RUN} --verify 0 -- grep r < in.tsv")
    assert ended.code == 3 and "binary file matches" in ended.err, ended.shown


def test_grep_error_is_a_failure(filled: Shell) -> None:
    ended = filled.run(f"{RUN} -- grep '(' -E < in.tsv")
    assert ended.code == 4 and "exit status 2" in ended.err, ended.shown


def test_file_per_record_without_a_match_is_empty(filled: Shell) -> None:
    (filled.work / "d").mkdir()
    for k in range(5):
        (filled.work / f"d/{k}.txt").write_text(f"n{k}\n")
    ended = filled.run(
        "mkdir o; millrace run --input d --output 'o/{stem}.out' --ok-status 1 -- sh -c 'grep n3 $0 > $1' d 'o/{stem}.out'"
    )
    assert ended.code == 0, ended.shown
    assert [(filled.work / f"o/{k}.out").read_text() for k in range(5)] == ["", "", "", "n3\n", ""]


def test_ok_status_option_makes_an_exit_status_a_result(filled: Shell) -> None:
    """Millrace knows only some programs whose exit status other than 0 is a result."""
    filled.tool("finder", FINDER)
    ended = filled.run(f"{RUN} --verify 0 --max-quarantined 2 -- finder r3 < in.tsv")
    assert ended.code == 4 and "say so with --ok-status 7" in ended.err, ended.shown
    ended = filled.run(f"{RUN} --verify 0 --retry-quarantined --ok-status 7 -- finder r3 < in.tsv")
    assert ended.code == 0 and "exit status 7, which is a result" in ended.err, ended.shown
    lines = ended.out.splitlines()  # what it had started is waited for
    assert lines.count("r3\t3") == 1 and lines.count("more") == len(lines) - 1 >= N // BATCH


def test_job_file_sets_ok_status_as_number_or_list(filled: Shell) -> None:
    filled.tool("finder", FINDER)
    job = 'command = ["finder", "r3"]\nformat = "lines"\nbatch = 4\nverify = 0\nok-status = {}\n'
    for said in ("7", "[7, 9]"):
        (filled.work / "job.toml").write_text(job.format(said))
        ended = filled.run("millrace run job.toml < in.tsv")
        assert ended.code == 0 and ended.out.count("r3\t3\n") == 1, ended.shown
    (filled.work / "job.toml").write_text(job.format("0"))
    ended = filled.run("millrace run job.toml < in.tsv")
    assert ended.code == 2 and "ok-status: expected a whole number >= 1" in ended.err, ended.shown


@pytest.mark.skipif(not shutil.which("phmmer"), reason="phmmer is not installed")
def test_ok_status_of_a_known_tool_is_refused(shell: Shell) -> None:
    """Millrace knows the exit statuses of the tool, and that one means a failure."""
    ended = shell.run("millrace run --ok-status 1 -- phmmer in.fa in.fa")
    assert ended.code == 2 and "millrace knows what the exit statuses of phmmer say" in ended.err, ended.shown


def test_resume_drops_results_that_are_failures_now(filled: Shell) -> None:
    filled.tool("finder", "grep -w $1; [ ! -e stop ] || exit 9; exit 7")
    ended = filled.run(
        f"{RUN} --keep-run-dir --verify 0 --ok-status 7 --input in.tsv --output o -- sh -c 'finder r3 < $0 > $1' in.tsv o"
    )
    assert ended.code == 0, ended.shown
    ended = filled.run(
        f"{RUN} --keep-run-dir --verify 0 --input in.tsv --output o -- sh -c 'finder r3 < $0 > $1' in.tsv o"
    )
    assert ended.code == 2 and "--ok-status: was also 7, whose results would stay" in ended.err, ended.shown
