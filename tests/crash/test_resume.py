"""A resumed run does what is missing, refuses what has changed, and never takes back what a reader saw."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import harness
import msgspec
import pytest
from crash_site import FRAMED, TOOL, Site

from millrace.rundir.paths import RunDir


def stop_halfway(site: Site, n_executions: int = 5) -> int:
    """Kill a run when some of it is done; how many executions there were."""
    process = site.start(HOLD=str(n_executions))
    site.wait_for_work(process, n_executions)
    process.kill()
    process.communicate()
    assert not harness.left_over(str(site.folder))
    return site.executions


def test_only_missing_batches_run(site: Site) -> None:
    begun = stop_halfway(site)
    code, said = site.run()
    assert code == 0, said
    # Two slots: at most what ran in them when it was killed runs again.
    assert 10 <= site.executions <= 12 and begun < 10
    assert site.output.read_bytes() == site.expected


def test_joined_output_resumes_behind_its_header(site: Site) -> None:
    (site.folder / "tool").write_text(FRAMED)
    site.options = (*site.options, "--join", "header", "--join", "footer")
    assert stop_halfway(site) < 10
    code, said = site.run()
    assert code == 0, said
    assert site.output.read_bytes() == b"# framed\n" + site.expected + b"# end\n"


def test_fresh_starts_over(site: Site) -> None:
    begun = stop_halfway(site)
    assert site.run("--fresh")[0] == 0
    assert site.executions == begun + 10
    assert site.output.read_bytes() == site.expected


def test_quarantined_record_is_retried_on_request_only(site: Site) -> None:
    code, said = site.run(BAD="record7$")
    assert code == 3, said
    assert (site.run_dir / "quarantine" / "record-8" / "stderr.txt").exists()
    without = site.expected.replace(b">seen record7\n" + b"A" * 50 + b"\n", b"")
    assert site.output.read_bytes() == without
    executions = site.executions
    assert site.run()[0] == 3, "the record is still lost"
    assert site.executions == executions
    code, said = site.run("--retry-quarantined")
    assert code == 0, said
    assert site.executions == executions + 1
    assert site.output.read_bytes() == site.expected


@pytest.mark.parametrize("changed", ["input", "tool", "arguments", "database"])
def test_a_change_is_refused_by_name(site: Site, changed: str) -> None:
    (site.folder / "db").write_text("one")
    site.options = (*site.options, "--shared", "db")
    stop_halfway(site)
    before = site.output.read_bytes() if site.output.exists() else None
    executions = site.executions
    command = site.command()
    if changed == "input":
        site.write_input("C")
    elif changed == "tool":
        (site.folder / "tool").write_text("#!/bin/sh\n")
    elif changed == "database":
        (site.folder / "db").write_text("other")
    else:
        site.command = lambda *more: [*command, "another"]  # type: ignore[method-assign]
    code, said = site.run()
    assert code == 2, said
    word = {"input": "input in.fa", "tool": "program", "arguments": "another", "database": "/db: was"}[changed]
    assert word in said and "--fresh" in said
    assert site.executions == executions
    assert (site.output.read_bytes() if site.output.exists() else None) == before


def test_change_unseen_by_fingerprint_is_found_by_digests(tmp_path: Path) -> None:
    """The bytes of each batch have a digest; the fingerprint samples a large file."""
    site = Site(tmp_path)
    # Beyond the size up to which an input is read whole, between two samples.
    line = "ACGTACGTAC" * 12 + "\n"
    with (tmp_path / "in.fa").open("w") as file:
        for k in range(8):
            file.write(f">record{k}\n" + line * 80_000)
    site.options = ("--slots", "2", "--batch", "1")
    stop_halfway(site, 4)
    size = (tmp_path / "in.fa").stat().st_size
    assert size > 64 << 20
    with (tmp_path / "in.fa").open("r+b") as file:
        for k in range(8):  # whichever were done
            file.seek((2 * (k * 63 // 8) + 3) * size // 126)
            file.write(b"N")
    code, said = site.run()
    assert code == 5, said
    assert re.search(r"records (\d) to \1 are not what they were", said) and "in.fa" in said


def test_a_reader_sees_the_output_only_grow(site: Site) -> None:
    seen = b""
    for _ in range(6):
        process = site.start(SLEEP="0.1")
        while process.poll() is None:
            now = site.output.read_bytes() if site.output.exists() else b""
            assert len(now) >= len(seen), "shorter than what a reader saw"
            assert site.expected.startswith(now), "not a prefix of the serial output"
            seen = now
            if site.executions % 3 == 2 and len(now) > len(seen) // 2 and process.poll() is None:
                process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode == 0:
            break
    else:
        assert site.run()[0] == 0
    assert site.output.read_bytes() == site.expected


def test_output_of_another_run_is_not_mixed_with_ours(site: Site) -> None:
    old = b"old " * 10_000
    site.output.write_bytes(old)
    process = site.start(HOLD="4")
    site.wait_for_work(process, 4)
    process.kill()
    process.communicate()
    now = site.output.read_bytes()
    assert now == old or site.expected.startswith(now), now
    assert site.run()[0] == 0
    assert site.output.read_bytes() == site.expected


def test_run_killed_while_removing_its_directory_is_done(site: Site) -> None:
    assert site.run("--keep-run-dir")[0] == 0
    rundir = RunDir(site.run_dir)
    kept = rundir.read_complete(rundir.read_manifest())
    assert kept
    executions = site.executions
    code, said = site.run()
    assert code == 0 and "already done" in said
    assert site.run_dir.exists(), "asked to be kept"
    rundir.write_complete(msgspec.structs.replace(kept, kept=False))
    for name in ("journal.mrj", "events.jsonl"):
        (site.run_dir / name).unlink()
    code, said = site.run()
    assert code == 0 and "already done" in said
    assert site.executions == executions
    assert not site.run_dir.exists()


def test_run_killed_after_its_completion_counts_as_done(site: Site) -> None:
    kill_behind = (
        "import os; from millrace.cli import main; from millrace.rundir.paths import RunDir; write = RunDir.write_complete; "
        "RunDir.write_complete = lambda *words: (write(*words), os.kill(os.getpid(), 9)); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", kill_behind, *site.command()[3:]], cwd=site.folder, env={**os.environ, "LOG": str(site.log)},
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (site.run_dir / "complete.json").exists()
    code, said = site.run()
    assert code == 0 and "already done" in said and "unfinished" not in said, said
    assert site.output.read_bytes() == site.expected


def test_verification_passes_or_names_the_difference(site: Site) -> None:
    code, said = site.run("--verify", "1.0")
    assert code == 0 and "checked on 40 of 40 records cut elsewhere, all bytes equal" in said
    assert site.executions > 10 + 5, "each pair as one, and more at both ends"
    for _ in range(2):  # the failure is not forgotten
        code, said = site.run("--verify", "1.0", RANDOMLY="1")
        assert code == 5, said
        # Both ends are looked at side by side: which of them is told of depends on who is first.
        assert re.search(r"out\.fa: first in line \d+ of what they give, at records \d+ to \d+", said), said
        assert "random numbers" in said
        assert site.output.read_bytes() == site.expected, "nothing was written: it is the first run's"


#: Millrace, whose looks do not depend on how long the tool took.
STEADY = """
from millrace.scheduler import verification_stretches
verification_stretches.MAX_ALONE_SECONDS, verification_stretches.MIN_SLOW_SECONDS = 0.0, 1e6
from millrace.cli import main
main()
"""


def test_run_killed_while_verifying_keeps_its_checks(site: Site) -> None:
    command = site.command
    site.command = lambda *more: [sys.executable, "-c", STEADY, *command(*more)[3:]]  # type: ignore[method-assign]
    process = site.start("--verify", "1", HOLD="14")
    site.wait_for_work(process, 14)
    process.kill()
    process.communicate()
    begun = site.executions
    code, said = site.run("--verify", "1")
    assert code == 0 and "checked on 40 of 40 records cut elsewhere, all bytes equal" in said
    assert site.output.read_bytes() == site.expected
    whole = site.executions
    code, said = site.run("--verify", "1", "--fresh")
    assert whole - begun < site.executions - whole, "what was looked at before was kept"


def test_resumed_run_detects_a_difference(site: Site) -> None:
    # In one slot tasks are done, and looked at again, in their order; in two, who is first is told of.
    process = site.start("--verify", "0", "--slots", "1", HOLD="8", RANDOMLY="1")
    site.wait_for_work(process, 8)
    process.kill()
    process.communicate()
    code, said = site.run("--verify", "0.01", "--slots", "1")
    assert code == 5 and "tool gave other bytes for records 1 to" in said, said


def stop_while_appending(site: Site, log: Path, tool: str, seen: bytes) -> list[str]:
    """Stop a run whose standard output and error append to ``log``, once that holds ``seen``; its command."""
    (site.folder / "tool").write_text(tool)
    command = [
        *site.command()[:4],
        "--slots",
        "2",
        "--batch",
        "4",
        "--verify",
        "0",
        "--input",
        "in.fa",
        "--",
        "./tool",
        "in.fa",
    ]
    with log.open("ab") as end:
        process = subprocess.Popen(
            command, cwd=site.folder, stdin=subprocess.DEVNULL, stdout=end, stderr=end,
            env={**os.environ, "LOG": str(site.log), "HOLD": "5", harness.MARK: str(site.folder)},
        )  # fmt: skip
        site.wait_for_work(process, 6)
        assert harness.wait_until(lambda: seen in log.read_bytes(), process)
        process.send_signal(signal.SIGUSR2)
        assert harness.wait_until(lambda: b"no more work is handed out" in log.read_bytes(), process)
        site.release()
        assert process.wait(harness.LONGEST_SECONDS) == 143, log.read_text()
    return command


def run_appending(site: Site, command: list[str], log: Path) -> int:
    """Run the same command once more, behind what is in ``log``; its exit code."""
    with log.open("ab") as end:
        environ = {**os.environ, "LOG": str(site.log), harness.MARK: str(site.folder)}
        return subprocess.run(
            command, cwd=site.folder, stdin=subprocess.DEVNULL, stdout=end, stderr=end, env=environ
        ).returncode


#: Writes its result where its caller reads it; and nothing there.
TO_STDOUT = TOOL.replace(' > "$2" || exit 9', "").replace('>> "$2"', "")
TO_NOTHING = TOOL.replace(' > "$2" || exit 9', " > /dev/null").replace('>> "$2"', "")


def test_log_without_results_is_appended_on_resume(site: Site) -> None:
    """As batch systems open the log of a job that comes back."""
    log = site.folder.with_name(f"{site.folder.name}.job.log")
    log.write_text("the job script says something\n")
    command = stop_while_appending(site, log, TO_NOTHING, b"millrace: ")
    assert run_appending(site, command, log) == 0, log.read_text()
    assert site.executions == 10
    log.unlink()


def test_results_in_an_appended_log_are_not_written_twice(site: Site) -> None:
    log = site.folder.with_name(f"{site.folder.name}.job.log")
    log.write_text("the job script says something\n")
    command = stop_while_appending(site, log, TO_STDOUT, b">seen record0\n")
    before = log.read_bytes()
    assert b">seen record0\n" in before
    assert run_appending(site, command, log) == 2
    assert b"stand twice" in log.read_bytes().removeprefix(before)
    # Behind what is in another file all of it goes, of which nothing is there.
    other = site.folder.with_name(f"{site.folder.name}.other.log")
    other.write_bytes(b"something\n")
    with other.open("ab") as end:
        environ = {**os.environ, "LOG": str(site.log), harness.MARK: str(site.folder)}
        code = subprocess.run(
            command, cwd=site.folder, stdin=subprocess.DEVNULL, stdout=end, stderr=subprocess.DEVNULL, env=environ
        ).returncode
    assert code == 0 and site.executions == 10
    assert other.read_bytes() == b"something\n" + site.expected
    log.unlink()
    other.unlink()
