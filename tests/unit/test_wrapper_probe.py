"""What a program that stands before a tool starts."""

import subprocess

import pytest

from millrace.planning import wrapper_probe

pytestmark = pytest.mark.process

#: Starts in which a process is read while it becomes another program; one in four showed a mixture of both.
N_STARTS = 100


def test_process_is_never_read_as_a_mixture_of_two_programs() -> None:
    for _ in range(N_STARTS):
        with subprocess.Popen(["/bin/sh", "-c", "exec sleep 60"]) as process:
            try:
                found = None
                while not (found and found.program.endswith("/sleep") and found.arguments):
                    found = wrapper_probe._read_process(process.pid)
                assert found.arguments == ("sleep", "60")
            finally:
                process.kill()
