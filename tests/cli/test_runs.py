"""What is left of a run that has ended: `millrace runs`, and `status` and `report` of a run whose directory is gone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from shell import PLAIN, Shell

from millrace.rundir import run_history

RUN = "millrace run --slots 1 --batch 1 --verify 0 --input in.fa"


@pytest.fixture
def state(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = shell.root / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    return place


def listed(shell: Shell) -> list[dict[str, Any]]:
    ended = shell.run("millrace runs --json")
    assert ended.code == 0, ended.shown
    found: list[dict[str, Any]] = json.loads(ended.out)
    return found


def test_finished_run_is_shown_by_name_and_by_path(shell: Shell, state: Path) -> None:
    assert shell.run("millrace runs").err == "no runs are kept\n"
    assert shell.run(f"{RUN} --output o -- tee2 in.fa o").code == 0
    assert shell.run(f"{RUN} --output p -- tee2 in.fa p").code == 0
    assert not shell.run_dirs()
    first, second = listed(shell)
    assert (first["argv"], second["argv"]) == (["tee2", "in.fa", "o"], ["tee2", "in.fa", "p"])
    assert (first["status"], first["exit_code"], first["records_done"]) == ("done", 0, 3)
    name = first["run_id"][:8]
    shown = shell.run("millrace runs").out
    assert name in shown and "3 records" in shown and "tee2 in.fa p" in shown and str(shell.work) in shown
    watched = shell.run("millrace watch o")
    assert watched.code == 0 and watched.out.startswith("o: done, ") and "3 records" in watched.out, watched.shown
    gathered = shell.run("millrace gather o")
    assert gathered.code == 2 and f"the run was done, and {shell.work}/o.millrace is gone" in gathered.err, (
        gathered.shown
    )
    refused = shell.run("millrace report o -o o")
    assert (
        refused.code == 2
        and "o: is there, and no report" in refused.err
        and shell.work.joinpath("o").read_bytes()[:1] == b">"
    )
    for run in (name, "o", "o.millrace", f"{shell.work}/o.millrace"):
        said = shell.run(f"millrace status {run}")
        assert said.code == 0 and f"{shell.work}/o.millrace: done at 2" in said.out and "records done: 3," in said.out
        assert json.loads(shell.run(f"millrace report --json {run}").out)["n_tasks"] == 3
    assert shell.run(f"millrace report {name}").out == f"report-{name}.html\n"
    assert "tee2 in.fa o" in (shell.work / f"report-{name}.html").read_text()
    assert shell.run("millrace status nosuch").code == 2
    assert state.joinpath("millrace/runs").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_each_run_is_listed_once_with_its_last_end(shell: Shell, state: Path) -> None:
    line = f"{RUN} --output o -- bad2 in.fa o"
    shell.tool("bad2", 'case $(cat "$1") in *r2*) [ -e ok ] || exit 7;; esac; cat "$1" > "$2"')
    stopped = shell.run(line.replace("--slots", "--on-failure stop --slots"))
    assert stopped.code == 1, stopped.shown
    (found,) = listed(shell)
    assert (found["status"], found["exit_code"]) == ("stopped", 1) and "record 2 (r2) failed" in found["message"]
    why, _, hint = found["message"].partition("\n\nhint: ")
    said = shell.run("millrace status").out
    assert f"  why:          {why.splitlines()[0]}\n" in said and said.endswith(f"  hint:         {hint}\n")
    assert shell.run(line).code == 3
    (found,) = listed(shell)
    assert (found["status"], found["exit_code"], found["quarantined"], found["n_starts"]) == ("quarantined", 3, 1, 2)
    # What is still there says more than what is kept.
    for run in ("o.millrace", "o", f"{shell.work}/o"):
        assert (
            "records done: 2 (without a gap from the start, with those in quarantine: 3), quarantined: 1"
            in shell.run(f"millrace status {run}").out
        )
    assert shell.run("millrace report --json o").code == 0
    shell.run(line.replace("o -- bad2 in.fa o", "p -- bad2 in.fa p"))
    both = shell.run("millrace status").out
    assert "o.millrace: done\n" in both and "p.millrace: done\n" in both
    assert shell.run("millrace gather o --stream o").out == (shell.work / "o").read_text()
    assert "o: quarantined" in shell.run("millrace watch o").out
    own = shell.run("millrace gather o --stream o -o o")
    assert own.code == 2 and "o: is the output of the run itself" in own.err, own.shown
    assert shell.run("mv o x; millrace gather o --stream o -o o; cmp o x").code == 0


def test_unread_input_is_reported(shell: Shell) -> None:
    said = shell.run("millrace run --input in.fa -- cat < /dev/null")
    assert (said.code, said.out) == (0, ""), said.shown
    assert "nothing was written. in.fa is not in the arguments" in said.err
    ((option, behind),) = re.findall(r"type (.*) in place of --input in\.fa, and (.*) behind the command", said.err)
    assert shell.run(f"millrace run {option} -- cat {behind}").out == (shell.work / "in.fa").read_text()


def test_unusable_state_folder_does_not_fail_a_run(shell: Shell, state: Path) -> None:
    state.joinpath("millrace/runs").mkdir(parents=True, mode=0o755)  # others could put something there
    ended = shell.run(f"{RUN} --output o -- tee2 in.fa o")
    assert ended.code == 0 and "state" not in ended.err, ended.shown
    assert not list(state.joinpath("millrace/runs").iterdir()) and listed(shell) == []


def test_only_the_latest_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    events = tmp_path / "events.jsonl"
    events.write_bytes(b"x" * 1000)
    monkeypatch.setattr(run_history, "MAX_RUNS", 5)

    def keep(number: int) -> list[int]:
        run_history.archive_run(
            run_history.EndedRun(
                run_id=f"{number:032x}", ended="", argv=("a",), host="", cwd="", run_dir="", status="done", exit_code=0,
                message="", records_done=number, quarantined=0, n_starts=1, wall=1.0,
            ),
            {run_history.EVENTS: events}, environ,
        )  # fmt: skip
        return [each.past.records_done for each in run_history.list_archived_runs(environ)]

    for number in range(8):
        found = keep(number)
    assert found == [3, 4, 5, 6, 7]
    assert keep(4) == [3, 5, 6, 7, 4]
    monkeypatch.setattr(run_history, "MAX_RUN_BYTES", 4500)
    assert keep(8) == [7, 4, 8]
    assert len(list((tmp_path / "millrace/runs").iterdir())) == 3


def test_closed_stdout_reports_where_the_rest_is_kept(shell: Shell, state: Path) -> None:
    """Also where no state can be written; then the folder stays beside the run."""
    (shell.work / "in.fa").write_text("".join(f">r{k}\n{'MKV' * 9000}\n" for k in range(40)))
    line = f"{PLAIN} millrace run --format fasta --slots 1 --batch 1 --verify 0 -- copy < in.fa"
    ended = shell.run(f"chmod 555 .; {line} | head -1; exit ${{PIPESTATUS[0]}}")
    assert ended.code == 141 and "nobody reads standard output any more" in ended.err, ended.shown
    (left,) = state.joinpath("millrace/unfinished").iterdir()
    assert f"kept in {left}" in ended.err and f"rm -r {left}" in ended.err and not shell.run_dirs()
    ended = shell.run(f"{line} | cmp - in.fa; chmod 755 .")
    assert ended.code == 0, ended.shown
    assert not list(state.joinpath("millrace/unfinished").iterdir())


def test_the_run_directory_lies_beside_a_folder_of_outputs(shell: Shell) -> None:
    shell.tool("each", 'cp "$1" "$2"')
    (shell.work / "d").mkdir()
    for name in "ab":
        (shell.work / "d" / name).write_text("x\n")
    (shell.work / "o").mkdir()
    line = "millrace run --keep-run-dir --verify 0 --input d --output 'o/{name}.txt' -- each d 'o/{name}.txt'"
    ended = shell.run(line)
    assert ended.code == 0, ended.shown
    assert sorted(path.name for path in (shell.work / "o").iterdir()) == ["a.txt", "b.txt"]
    assert shell.run_dirs() == ["o.name.txt.millrace"]
    assert "already done" in shell.run(line).err


def test_start_removes_dead_unfinished_run_directories(shell: Shell, state: Path) -> None:
    """Also if the run is already done and nothing is left to run."""
    line = f"{RUN} --keep-run-dir --output o -- tee2 in.fa o"
    assert shell.run(line).code == 0
    dead, young = state / "millrace/runs/.new-dead", state / "millrace/runs/.new-young"
    for folder in (dead, young):
        folder.mkdir()
        (folder / "run.json").touch()
    os.utime(dead, (0, 0))
    again = shell.run(line)
    assert "already done" in again.err, again.shown
    assert young.exists() and not dead.exists()
