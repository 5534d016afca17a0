"""A job in phases as others see it: `millrace status` and `runs`, and signs of life for other machines."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from harness import wait_until
from shell import Shell

from millrace.extensions.watch.watch_targets import WatchedJob
from millrace.extensions.watch.watch_view import build_phase_charts, list_busy_times
from millrace.host import file_lock, lock_owner

JOB = """
[phase.one]
command = "cat"
stdin = "in.fa"
stdout = "a.fa"
format = "fasta"
[phase.two]
command = "gate a.fa b.fa"
input = "a.fa:fasta"
output = "b.fa"
batch = "1"
verify = 0
[phase.three]
filter = "cat"
input = "b.fa"
output = "c.fa"
after = ["two"]
"""


@pytest.fixture
def held(shell: Shell) -> Iterator[subprocess.Popen[bytes]]:
    """A job whose second phase waits before its last record until ``open`` is there."""
    waits = 'case $(cat "$1") in *r3*) : > "$MARK/waits"; while [ ! -e "$MARK/open" ]; do sleep 0.1; done;; esac'
    shell.tool("gate", f'{waits}; cat "$1" > "$2"')
    (shell.work / "job.toml").write_text(JOB)
    environ = {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)}
    with subprocess.Popen(["millrace", "run", "-q", "job.toml"], cwd=shell.work, env=environ, stdin=subprocess.DEVNULL) as run:  # fmt: skip
        try:
            assert wait_until((shell.root / "waits").exists)
            yield run
        finally:
            (shell.root / "open").touch()
            run.kill()


def let_go(shell: Shell, run: subprocess.Popen[bytes]) -> None:
    (shell.root / "open").touch()
    assert run.wait(300) == 0


def test_status_and_runs_report_each_phase(shell: Shell, held: subprocess.Popen[bytes]) -> None:
    said = shell.run("millrace status job.millrace")
    assert said.code == 0, said.shown
    first, one, two, three = said.out.splitlines()
    assert first == "job.millrace: running"
    assert one.startswith("  one:   done, 3 records, ") and two.startswith("  two:   running, ")
    assert three == "  three: waiting"
    found = json.loads(shell.run("millrace status --json job.millrace").out)
    assert found["state"] == "running"
    assert [(each["name"], each["state"]) for each in found["phases"]] == [
        ("one", "done"), ("two", "running"), ("three", "waiting")
    ]  # fmt: skip
    assert found["phases"][0]["records_done"] == 3
    listed = shell.run("millrace runs")
    assert listed.out.startswith("job.millrace: running; one done, 3 records, "), listed.shown
    assert json.loads(shell.run("millrace runs --json").out) == []
    let_go(shell, held)
    assert shell.run("millrace runs").err == "no runs are kept\n"


@pytest.mark.slow
def test_finished_job_is_listed_and_shown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(shell.root / "state"))
    shell.tool("gate", 'case $(cat "$1") in *r2*) [ -e ok ] || exit 7;; esac; cat "$1" > "$2"')
    job = JOB.replace("verify = 0\n", 'verify = 0\non-failure = "stop"\n')
    (shell.work / "job.toml").write_text(job)
    assert shell.run("millrace run -q job.toml").code == 1
    (stopped,) = json.loads(shell.run("millrace runs --json").out)
    assert (stopped["status"], stopped["exit_code"], stopped["argv"]) == ("stopped", 1, ["millrace", "run", "job.toml"])
    assert shell.run("touch ok; millrace run -q job.toml").code == 0 and not (shell.work / "job.millrace").exists()
    (done,) = json.loads(shell.run("millrace runs --json").out)
    assert (done["run_id"], done["status"], done["exit_code"]) == (stopped["run_id"], "done", 0)
    assert (done["records_done"], done["n_starts"]) == (6, 2)
    for name in ("job.millrace", done["run_id"][:8]):
        said = shell.run(f"millrace status {name}")
        first, one, two, three = said.out.splitlines()
        assert first.startswith(f"{shell.work}/job.millrace: done at 2") and first.endswith(", exit code 0"), said.shown
        assert (
            one.startswith("  one:   done, 3 records")
            and two.startswith("  two:   done, 3 records")
            and three == "  three: done"
        )
        assert json.loads(shell.run(f"millrace status --json {name}").out)["state"] == "done"
        assert json.loads(shell.run(f"millrace report --json {name}").out)["two"]["records_done"] == 3
        assert "two done, 3 records" in shell.run(f"millrace watch {name}").out
    page = shell.run("millrace report job.millrace").out.strip()
    assert page == f"report-{done['run_id'][:8]}.html" and "three" in (shell.work / page).read_text()


def test_status_of_a_killed_job_reports_that_it_resumes(shell: Shell, held: subprocess.Popen[bytes]) -> None:
    held.kill()
    held.wait()
    assert wait_until(lambda: not file_lock.has_live_owner(shell.work / "job.millrace" / "two" / "lock"))
    said = shell.run("millrace status job.millrace")
    assert said.out.startswith("job.millrace: killed\n") and "  two:   killed" in said.out, said.shown
    assert said.out.endswith("  type the command again in the same folder to resume\n")
    assert shell.run("millrace runs").err == "no runs are kept\n"


def test_job_updates_its_heartbeat_for_other_machines(shell: Shell, held: subprocess.Popen[bytes]) -> None:
    """As long as it runs; a machine that shares the folder has nothing else to go by."""
    path = shell.work / "job.millrace" / "lock"
    os.utime(path, (0, 0))
    assert wait_until(lambda: path.stat().st_mtime > 0)
    let_go(shell, held)


def test_job_resumed_by_another_machine_ends(shell: Shell, held: subprocess.Popen[bytes]) -> None:
    path: Path = shell.work / "job.millrace" / "lock"
    owner = lock_owner.read_owner(path)
    assert owner
    path.write_text(json.dumps({"pid": 1, "started": 1, "host": "elsewhere", "place": "another"}))
    assert held.wait(300) == 128 + 15
    (shell.root / "open").touch()
    assert not (shell.work / "c.fa").exists()


def earlier(folder: Path, seconds: float, silent: float) -> None:
    """Let all have happened ``seconds`` earlier, but the last sign of life ``silent`` seconds ago."""
    log = folder / "phases.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps({**line, "time": line["time"] - seconds}) + "\n" for line in lines))
    for path in folder.rglob("events.jsonl"):
        head, *rest = path.read_text().splitlines()
        begun = datetime.fromisoformat(json.loads(head)["time"]) - timedelta(seconds=seconds)
        path.write_text("\n".join([json.dumps({**json.loads(head), "time": begun.isoformat()}), *rest, ""]))
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - silent,) * 2)


def seconds_of(shell: Shell) -> dict[str, float]:
    said = shell.run("millrace status --json job.millrace")
    assert said.code == 0, said.shown
    return {each["name"]: each["seconds"] for each in json.loads(said.out)["phases"]}


@pytest.mark.slow
def test_killed_job_shows_the_duration_of_its_phases(shell: Shell, held: subprocess.Popen[bytes]) -> None:
    """Until its last sign of life: not until the begin of the phase, nor until the next start of the job."""
    folder = shell.work / "job.millrace"
    held.kill()
    held.wait()
    assert wait_until(lambda: not file_lock.has_live_owner(folder / "two" / "lock"))
    earlier(folder, 100_000, silent=90_000)
    assert 9_000 < seconds_of(shell)["two"] < 11_000
    job = WatchedJob(folder, "job", os.environ)
    chart = build_phase_charts(job.read_view().phases)
    job.close()
    assert chart["unit"] == "minutes" and 150 < chart["length"] < 180
    (shell.root / "open").touch()
    resumed = shell.run("millrace run -q --keep-run-dir job.toml")
    assert resumed.code == 0, resumed.shown
    assert 9_000 < seconds_of(shell)["two"] < 20_000
    job = WatchedJob(folder, "job", os.environ)
    phases = {phase.name: phase for phase in job.read_view().phases}
    job.close()
    chart = build_phase_charts([*phases.values()])
    assert [(each["phase"], each["state"]) for each in chart["bars"]][:3] == [("one", "stopped"), ("one", "done"), ("two", "killed")]  # fmt: skip
    # What phase one did in the first start is shown there, although the second start found it done.
    begun = [begin for begin, _, _ in list_busy_times(phases["one"], phases["one"].stretches[0].begun)]
    assert begun and max(begun) < 10_000, begun
    begun = [begin for begin, _, _ in list_busy_times(phases["two"], phases["one"].stretches[0].begun)]
    assert max(begun) > 90_000, begun
