"""A run that is stopped with all of its tools, as ``scontrol suspend`` or a frozen cgroup does, and goes on later."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import harness
from crash_site import Site

#: A record may take so long, and everything is stopped for longer.
TIMEOUT_SECONDS, STOPPED_SECONDS = 5, 7


def test_stopped_time_does_not_count_against_a_record(site: Site) -> None:
    """Tools wait until the run has gone on for a moment: whatever was late would have been ended."""
    process = site.start("--batch", "1", "--record-timeout", str(TIMEOUT_SECONDS), HOLD="1")
    site.wait_for_work(process, 2)
    stopped = harness.marked(str(site.folder))
    for pid in stopped:
        with suppress(ProcessLookupError):  # a helper of the tool's that has ended by now
            os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    time.sleep(0.5)
    site.release()
    _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
    assert process.returncode == 0, said
    assert site.output.read_bytes() == site.expected
    assert site.executions == site.n, "a task was ended and tried again"
