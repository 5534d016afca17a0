"""A signal stops a run in order, a second one at once, and the same command goes on."""

from __future__ import annotations

import array
import fcntl
import functools
import json
import os
import pty
import re
import signal
import subprocess
import termios
import time
from pathlib import Path

import harness
import pytest
from crash_site import Site

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGUSR1: 143}


def held_by(pipe: int) -> int:
    """Bytes that a pipe holds."""
    held = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, held)
    return held[0]


def wait_for_work(site: Site, n_executions: int = 3) -> None:
    assert harness.wait_until(lambda: site.executions >= n_executions), "the run does not start"


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_running_tools_end_and_are_kept(site: Site, number: signal.Signals) -> None:
    process = site.start(SLEEP="0.3")
    wait_for_work(site)
    process.send_signal(number)
    _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
    assert process.returncode == CODES[number], said
    assert f"stopped by {number.name}" in said and "resumes" in said
    begun = site.executions
    assert begun < 10, "work went on after the signal"
    # All that had begun was kept: the resumed run does the rest, and nothing twice.
    assert site.run()[0] == 0
    assert site.executions == 10
    assert site.output.read_bytes() == site.expected
    assert not site.run_dir.exists()
    assert not harness.left_over("site")


def test_what_a_stopped_run_has_done_is_in_status_and_report(site: Site) -> None:
    process = site.start(SLEEP="0.3")
    wait_for_work(site)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=harness.LONGEST_SECONDS)

    def told(verb: str) -> int:
        command = [*site.command()[:3], verb, "--json", str(site.run_dir)]
        return int(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["records_done"])

    assert told("report") == told("status") == 4 * site.executions


def test_a_second_signal_ends_it_at_once(site: Site) -> None:
    process = site.start(SLEEP="30")
    wait_for_work(site, 2)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None, "the grace period"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=harness.LONGEST_SECONDS)
    assert process.returncode == 143
    assert time.monotonic() - begun < 15, "the grace period is 20 s"
    assert not harness.left_over("site")
    assert site.run()[0] == 0
    assert site.output.read_bytes() == site.expected


def test_an_ignored_hangup_stays_ignored(site: Site) -> None:
    process = site.start(wrap=("nohup",), SLEEP="0.1")
    wait_for_work(site)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=harness.LONGEST_SECONDS)
    assert process.returncode == 0
    assert site.executions == 10


def test_ctrl_c_in_a_terminal_hits_millrace_alone(site: Site) -> None:
    leader, follower = pty.openpty()
    environ = {**os.environ, "LOG": str(site.log), "SLEEP": "0.5", "TERM": "dumb"}
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *site.command()], cwd=site.folder, env=environ,
        stdin=follower, stdout=follower, stderr=follower,
    )  # fmt: skip
    os.close(follower)
    wait_for_work(site, 2)
    os.write(leader, b"\x03")
    code = None
    deadline = time.monotonic() + harness.LONGEST_SECONDS
    while code is None and time.monotonic() < deadline:
        os.set_blocking(leader, False)
        try:
            os.read(leader, 65536)
        except OSError:
            time.sleep(0.02)
        code = process.poll()
    os.close(leader)
    assert code == 130
    # The tools that ran were not hit: nothing runs twice.
    assert site.run()[0] == 0
    assert site.executions == 10
    assert site.output.read_bytes() == site.expected


def test_a_signal_is_heard_while_the_reader_of_the_output_sleeps(site: Site) -> None:
    site.n = 4000
    site.write_input()
    reading, writing = os.pipe()
    with (site.folder / "in.fa").open() as records:
        process = subprocess.Popen(
            [*site.command()[:3], "run", "--slots", "2", "--format", "fasta", "--", "cat"],
            cwd=site.folder,
            stdin=records,
            stdout=writing,
            stderr=subprocess.DEVNULL,
        )
    os.close(writing)
    assert harness.wait_until(lambda: held_by(reading) > 32 << 10), "the run does not start"
    assert process.poll() is None, "the pipe holds less than the output"
    process.send_signal(signal.SIGTERM)
    assert process.wait(harness.LONGEST_SECONDS) == 143
    os.close(reading)


def is_importing(pid: int) -> bool:
    """Whether Millrace's own code runs already, and nobody catches an interrupt yet."""
    place = Path("/proc") / str(pid)
    try:
        caught = re.search(r"^SigCgt:\s*(\w+)$", (place / "status").read_text(), re.MULTILINE)
        return "/_core." in (place / "maps").read_text() and bool(caught) and not int(caught[1], 16) & 1 << 1
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_before_the_first_record_is_a_quiet_end(site: Site, number: signal.Signals) -> None:
    mark = str(site.folder)
    for seconds in (0.0, 0.03, 0.1, 0.2, 0.3):
        process = site.start(SLEEP="0.5", mark=mark)
        assert harness.wait_until(functools.partial(is_importing, process.pid)), "it does not start"
        time.sleep(seconds)  # whatever it does by then
        process.send_signal(number)
        _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
        assert process.returncode in (-number, 128 + number), said
        assert "Traceback" not in said and "KeyboardInterrupt" not in said, said
        assert not harness.left_over(mark)
    assert site.run()[0] == 0
    assert site.output.read_bytes() == site.expected


def test_sigquit_ends_it_at_once_and_leaves_nothing(site: Site) -> None:
    mark = str(site.folder)
    process = site.start(SLEEP="1", mark=mark, wrap=("sh", "-c", 'ulimit -c 0; exec "$@"', "sh"))
    wait_for_work(site)
    process.send_signal(signal.SIGQUIT)
    process.communicate(timeout=harness.LONGEST_SECONDS)
    assert process.returncode == -signal.SIGQUIT
    assert not harness.left_over(mark)
    assert site.run()[0] == 0
    assert site.output.read_bytes() == site.expected
