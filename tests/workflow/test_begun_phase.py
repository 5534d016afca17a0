"""The first moments of a phase, which is a fork of the workflow."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

#: Begins a phase that would end well, and sends it a signal in the moment that it is there; prints how it has ended.
BEGINS = """
import os, signal, socket
from millrace.host.signals import StopSignals
from millrace.extensions.workflow import phase_process

phase_process._run_guarded = lambda phase: 0
phase_process.PhaseProcess = lambda *_: None
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), {number}))
end, other = socket.socketpair()
with StopSignals():
    child = phase_process.start_phase_process(None, None, end, [other], (set(), set()), "")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_phase_handles_a_signal_before_its_own_handlers(number: int) -> None:
    """A phase is a fork of the workflow."""
    script = BEGINS.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) == -number, done.stderr
