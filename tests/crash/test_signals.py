"""A signal stops a run in order, a second one at once, and the same command goes on."""

from __future__ import annotations

import array
import fcntl
import functools
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import harness
import pytest
from crash_site import Site

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGUSR1: 143,
         signal.SIGUSR2: 143, signal.SIGXCPU: 143}  # fmt: skip


def held_by(pipe: int) -> int:
    """Bytes that a pipe holds."""
    held = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, held)
    return held[0]


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_signal_ends_running_tools_and_keeps_results(site: Site, number: signal.Signals) -> None:
    process = site.start(HOLD="3")
    site.wait_for_work(process, 4)
    process.send_signal(number)
    said = harness.heard(process)
    site.release()
    said += process.communicate(timeout=harness.LONGEST_SECONDS)[1]
    assert process.returncode == CODES[number], said
    assert f"stopped by {number.name}" in said and "resumes" in said
    assert site.executions == 4, "work went on after the signal"
    # All that had begun was kept: the resumed run does the rest, and nothing twice.
    assert site.run()[0] == 0
    assert site.executions == 10
    assert site.output.read_bytes() == site.expected
    assert not site.run_dir.exists()
    assert not harness.left_over(str(site.folder))


def test_status_and_report_show_results_of_a_stopped_run(site: Site) -> None:
    process = site.start(HOLD="3")
    site.wait_for_work(process, 4)
    process.send_signal(signal.SIGTERM)
    harness.heard(process)
    site.release()
    process.communicate(timeout=harness.LONGEST_SECONDS)

    def told(verb: str) -> int:
        command = [*site.command()[:3], verb, "--json", str(site.run_dir)]
        return int(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["records_done"])

    assert told("report") == told("status") == 4 * site.executions


def test_a_second_signal_ends_it_at_once(site: Site) -> None:
    process = site.start("--grace", "3600", HOLD="1")
    site.wait_for_work(process, 2)
    process.send_signal(signal.SIGTERM)
    said = harness.heard(process)
    assert process.poll() is None, said
    process.send_signal(signal.SIGTERM)
    said += process.communicate(timeout=harness.LONGEST_SECONDS)[1]
    assert process.returncode == 143, said
    assert not harness.left_over(str(site.folder))
    assert site.run()[0] == 0
    assert site.output.read_bytes() == site.expected


def test_an_ignored_hangup_stays_ignored(site: Site) -> None:
    process = site.start(wrap=("nohup",), HOLD="3")
    site.wait_for_work(process, 4)
    process.send_signal(signal.SIGHUP)
    site.release()
    process.communicate(timeout=harness.LONGEST_SECONDS)
    assert process.returncode == 0
    assert site.executions == 10


def test_ctrl_c_in_a_terminal_reaches_millrace_alone(site: Site) -> None:
    leader, follower = pty.openpty()
    environ = {**os.environ, "LOG": str(site.log), "HOLD": "1", "TERM": "dumb"}
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *site.command()], cwd=site.folder, env=environ,
        stdin=follower, stdout=follower, stderr=follower,
    )  # fmt: skip
    os.close(follower)
    site.wait_for_work(process, 2)
    os.write(leader, b"\x03")
    code, said = None, b""
    deadline = time.monotonic() + harness.LONGEST_SECONDS
    while code is None and time.monotonic() < deadline:
        os.set_blocking(leader, False)
        try:
            said += os.read(leader, 65536)
        except OSError:
            time.sleep(0.02)
        if b"no more work is handed out" in said:
            site.release()
        code = process.poll()
    os.close(leader)
    assert code == 130, said
    # The tools that ran were not hit: nothing runs twice.
    assert site.run()[0] == 0
    assert site.executions == 10
    assert site.output.read_bytes() == site.expected


def test_signal_stops_a_run_whose_reader_sleeps(site: Site) -> None:
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
    assert harness.wait_until(lambda: held_by(reading) > 32 << 10, process), "the run does not start"
    assert process.poll() is None, "the pipe holds less than the output"
    process.send_signal(signal.SIGTERM)
    assert process.wait(harness.LONGEST_SECONDS) == 143
    os.close(reading)


def is_importing(pid: int) -> bool:
    """Whether Millrace's own code runs already."""
    try:
        return "/_core." in (Path("/proc") / str(pid) / "maps").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_signal_before_the_first_record_ends_quietly(site: Site, number: signal.Signals) -> None:
    mark = str(site.folder)
    for seconds in (0.0, 0.03, 0.1, 0.2, 0.3):
        go = site.log.with_name(f"{site.log.name}.go{seconds}")
        process = site.start(HOLD="1", GO=str(go), mark=mark)
        assert harness.wait_until(functools.partial(is_importing, process.pid), process), "it does not start"
        time.sleep(seconds)  # whatever it does by then
        process.send_signal(number)
        go.touch()
        _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
        assert process.returncode in (-number, 128 + number), said
        assert "Traceback" not in said and "KeyboardInterrupt" not in said, said
        assert not harness.left_over(mark)
    assert site.run()[0] == 0
    assert site.output.read_bytes() == site.expected


def test_sigquit_ends_it_at_once_and_leaves_nothing(site: Site) -> None:
    mark = str(site.folder)
    process = site.start(HOLD="3", mark=mark, wrap=("sh", "-c", 'ulimit -c 0; exec "$@"', "sh"))
    site.wait_for_work(process, 4)
    process.send_signal(signal.SIGQUIT)
    process.communicate(timeout=harness.LONGEST_SECONDS)
    assert process.returncode == -signal.SIGQUIT
    assert not harness.left_over(mark)
    assert site.run()[0] == 0
    assert site.output.read_bytes() == site.expected


#: Begins as the command ``millrace`` does, with a Ctrl-C when the first file is looked for after that of `__main__`.
INTERRUPTED = """
import _signal, os, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name not in ("millrace", "millrace.__main__"):
            os.kill(os.getpid(), _signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from millrace.__main__ import main
"""


def test_ctrl_c_before_imports_ends_quietly() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


LOSES_AN_INTERRUPT = """
import signal, weakref
import click
from millrace import cli

@click.command()
def loses():
    class Thing: pass
    thing = Thing()
    kept = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing  # Python prints what a callback raises, and goes on
    signal.pause()

cli.group = loses
cli.main()
"""


#: A start of a thread that takes a while, as on a busy machine.
SLOW_START = """
import threading, time
start = threading.Thread.start
def slow(thread):
    start(thread)
    time.sleep(0.3)
threading.Thread.start = slow
"""


@pytest.mark.parametrize("before", ["", SLOW_START], ids=["idle", "busy"])
def test_an_interrupt_within_a_callback_of_python_is_not_lost(before: str) -> None:
    """Each import has such a callback, which releases its lock."""
    ended = subprocess.run(
        [sys.executable, "-c", before + LOSES_AN_INTERRUPT],
        capture_output=True,
        text=True,
        timeout=harness.LONGEST_SECONDS,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (ended.returncode, ended.stderr.strip()) == (130, "")
