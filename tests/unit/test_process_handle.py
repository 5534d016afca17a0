"""Handles of processes, by Pythons that have names for the system calls and by those that have none."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
from collections.abc import Iterator

import pytest

from millrace.host.process_handle import open_process_handle, signal_process

pytestmark = pytest.mark.process


@pytest.fixture(params=["by name", "by number"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by number":
        monkeypatch.delattr(os, "pidfd_open")
        monkeypatch.delattr(signal, "pidfd_send_signal")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as made:
        yield made
        made.kill()


def is_readable(handle: int, seconds: float) -> bool:
    return bool(select.select([handle], [], [], seconds)[0])


@pytest.mark.usefixtures("way")
def test_a_handle_is_readable_once_its_process_has_ended(process: subprocess.Popen[bytes]) -> None:
    handle = open_process_handle(process.pid)
    try:
        assert not os.get_inheritable(handle) and not is_readable(handle, 0)
        signal_process(handle, signal.SIGTERM)
        assert is_readable(handle, 300)
        assert process.wait() == -signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            signal_process(handle, signal.SIGTERM)
    finally:
        os.close(handle)


@pytest.mark.usefixtures("way")
def test_a_process_that_is_not_there_has_no_handle() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(OSError) as error:
        open_process_handle(process.pid)
    assert error.value.errno == errno.ESRCH
