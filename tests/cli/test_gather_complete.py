"""A finished run whose journal has lost its end: `gather` and `pack` say what is missing, and write nothing that looks whole."""

from __future__ import annotations

import pytest
from shell import Ended, Shell

from millrace import _core
from millrace.rundir.checksummed_json import encode_checksummed, encode_json
from millrace.rundir.paths import RunDir

N = 12
RUN = "millrace run --slots 1 --batch 2 --sync 0 --verify 0 --keep-run-dir"


@pytest.fixture
def finished(shell: Shell) -> Shell:
    (shell.work / "in.fa").write_text("".join(f">r{k}\nMKV\n" for k in range(1, N + 1)))
    ended = shell.run(f"{RUN} --input in.fa --output out -- tee2 in.fa out")
    assert ended.code == 0, ended.shown
    return shell


def cut_journal(shell: Shell, run: str, kept: int) -> None:
    """Let the journal end behind its first ``kept`` tasks."""
    journal = RunDir(shell.work / run).journal
    ends = [task.blocks[-1].offset + task.blocks[-1].length for task in _core.scan(str(journal), True).tasks]
    with journal.open("r+b") as file:
        file.truncate(ends[kept] - 1)  # within the task behind them, as after a crash


def check_refused(ended: Ended, kept: int) -> None:
    assert ended.code == 5, ended.shown
    assert f"records {2 * kept + 1} to {N}, the last of this finished run, are missing" in ended.err, ended.shown
    assert "journal.mrj" in ended.err and "--fresh" in ended.err, ended.shown


@pytest.mark.parametrize("kept", [0, 1, N // 2 - 1])
def test_gather_and_pack_journal_without_end_are_refused(finished: Shell, kept: int) -> None:
    cut_journal(finished, "out.millrace", kept)
    ended = finished.run("millrace gather --stream out out.millrace -o again")
    check_refused(ended, kept)
    assert not (finished.work / "again").exists()
    check_refused(finished.run("millrace gather --stream out out.millrace > stdout"), kept)
    assert not (finished.work / "stdout").read_bytes()
    check_refused(finished.run("millrace pack out.millrace -o out.mrp"), kept)
    assert not (finished.work / "out.mrp").exists()


def test_gather_ignore_errors_writes_the_rest_with_exit_code_5(finished: Shell) -> None:
    cut_journal(finished, "out.millrace", 4)
    ended = finished.run("millrace gather --stream out out.millrace --ignore-errors -o again")
    check_refused(Ended(ended.code, "", ended.err + "--fresh"), 4)
    assert (finished.work / "again").read_text() == "".join(f">r{k}\nMKV\n" for k in range(1, 9))


def test_gather_files_of_records_without_end_is_refused(shell: Shell) -> None:
    (shell.work / "in").mkdir()
    for k in range(6):
        (shell.work / "in" / f"{k}.fa").write_text(f">r{k}\nMKV\n")
    line = f"{RUN} --batch 1 --input in:files --output 'res/{{stem}}.fa'"
    ended = shell.run(f"mkdir res; {line} -- tee2 in 'res/{{stem}}.fa'")
    assert ended.code == 0, ended.shown
    [run] = [path.name for path in shell.work.glob("*.millrace")]
    cut_journal(shell, run, 3)
    ended = shell.run(f"millrace gather --stream _stem_.fa {run} -o again")
    assert ended.code == 5 and "records 4 to 6, the last of this finished run, are missing" in ended.err, ended.shown
    assert not (shell.work / "again").exists()


def test_gather_run_of_release_0_1_0_is_compared_by_size(finished: Shell) -> None:
    """That release noted no number of records: bytes tell."""
    rundir = RunDir(finished.work / "out.millrace")
    complete = rundir.read_complete(rundir.read_manifest())
    assert complete and complete.records == N
    noted = {"run_id": complete.run_id, "outputs": complete.outputs, "quarantined": 0, "kept": True}
    assert b"records" not in encode_json(noted)
    rundir.completion.write_bytes(encode_checksummed(noted))
    whole = finished.run("millrace gather --stream out out.millrace -o again")
    assert whole.code == 0 and (finished.work / "again").read_bytes() == (finished.work / "in.fa").read_bytes()
    cut_journal(finished, "out.millrace", 3)
    ended = finished.run("millrace gather --stream out out.millrace -o again")
    size = (finished.work / "in.fa").stat().st_size
    assert ended.code == 5 and f"bytes of the {size} that the run has written" in ended.err, ended.shown
    assert "again: is not whole" in ended.err, ended.shown
