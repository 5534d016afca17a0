"""What a program that stands before a tool starts."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from millrace.core.tool_use import InputArg, InputUse, ToolUse, UserCommand
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


#: What a wrapper runs before the tool, by the reader that the probe names.
FIRST_COMMANDS = {"": "sleep 0.01", "grep": 'grep -c ">" "$1"'}


@pytest.mark.parametrize("reader", FIRST_COMMANDS)
def test_tool_is_seen_however_late_processes_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """As on a loaded machine: the tool starts and opens its input between the listing of processes and its use."""
    listed = wrapper_probe._read_parents

    def list_late() -> dict[int, int]:
        parents = listed()
        time.sleep(0.05)
        return parents

    monkeypatch.setattr(wrapper_probe, "_read_parents", list_late)
    shutil.copy("/bin/cat", tmp_path / "blastp")
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\n{FIRST_COMMANDS[reader]}\n{tmp_path}/blastp "$@"\n')
    wrapper.chmod(0o755)
    use = ToolUse(adapter="blast", argv=("blastp", InputArg(0)), inputs=(InputUse("q", "fasta"),), outputs=())
    command = UserCommand(argv=("blastp", "q"), exe=wrapper, cwd=tmp_path, environ=dict(os.environ))
    found = wrapper_probe.observe_wrapper(use, command, "blastp")
    assert (found.outcome, found.words, found.reader) == ("same", f"{tmp_path}/blastp", reader)
