"""Older kernels and containers' profiles: each newer system call may be missing, or forbidden."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import deny_syscall
import harness
import pytest
from parameter_choice import some

#: What makes a run behave otherwise if it is not there; the others are used by the C library, Python and Rust alone.
NEEDED = ("close_range", "pidfd_open", "pidfd_send_signal")
OTHERS = (
    "clone3", "openat2", "faccessat2", "renameat2", "copy_file_range", "memfd_create", "statx", "fallocate", "inotify_init1",
    "syncfs", "unshare", "setns", "sendfile", "splice", "execveat", "preadv2", "getrandom",
)  # fmt: skip
DENIED = [
    *((name, error) for name in NEEDED for error in ("ENOSYS", "EPERM")),
    *((name, "ENOSYS") for name in OTHERS),
]
#: An old kernel has none of them.
OLD_KERNEL = (",".join((*NEEDED, *OTHERS)), "ENOSYS")


@pytest.fixture
def case(data: Path, tmp_path: Path) -> harness.Case:
    """A protein search with what it writes serially."""
    made = harness.blastp(tmp_path / "case", data, 8, 200)
    made.serial()
    return made


def start(case: harness.Case, mark: str, denied: tuple[str, str]) -> subprocess.Popen[bytes]:
    """Start the run with a system call denied to it and to all that it starts."""
    words = [
        sys.executable,
        deny_syscall.__file__,
        *denied,
        sys.executable,
        "-m",
        "millrace",
        "run",
        "--slots",
        "2",
        *case.options,
    ]
    with (case.folder / "stderr.txt").open("wb") as said:
        return subprocess.Popen(
            [*words, "--record-timeout", "300", "--", *case.tool],
            cwd=case.folder, env={**os.environ, harness.MARK: mark}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=said, start_new_session=True,
        )  # fmt: skip


@pytest.mark.parametrize("denied", some([OLD_KERNEL, *DENIED], OLD_KERNEL), ids="-".join)
def test_denied_call_changes_no_byte(case: harness.Case, denied: tuple[str, str]) -> None:
    mark, known = str(case.folder), harness.dead_work()
    process = start(case, mark, denied)
    assert process.wait(300) == 0, (case.folder / "stderr.txt").read_text()
    assert case.differing() == []
    assert not harness.left_over(mark, known)


@pytest.mark.parametrize("denied", DENIED[: 2 * len(NEEDED)], ids="-".join)
def test_denied_call_kill_leaves_nothing(case: harness.Case, denied: tuple[str, str]) -> None:
    mark, known = str(case.folder), harness.dead_work()
    process = start(case, mark, denied)
    assert harness.wait_until(lambda: bool(harness.tools(process.pid)) or process.poll() is not None)
    assert process.poll() is None, (case.folder / "stderr.txt").read_text()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not harness.left_over(mark, known)
    assert start(case, mark, denied).wait(300) == 0, (case.folder / "stderr.txt").read_text()
    assert case.differing() == []


def test_end_of_a_child_is_seen_without_pidfd() -> None:
    code = (
        "import os, select, subprocess; from millrace.host.process_handle import open_process_end as end\n"
        "p = subprocess.Popen(['cat'], stdin=subprocess.PIPE); fd = end(p.pid)\n"
        "assert not select.select([fd], [], [], 0)[0]; p.stdin.close()\n"
        "assert select.select([fd], [], [], 300)[0]; assert p.wait() == 0; os.close(fd)\n"
    )
    subprocess.run(
        [sys.executable, deny_syscall.__file__, "pidfd_open", "ENOSYS", sys.executable, "-c", code], check=True
    )
