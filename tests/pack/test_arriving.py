"""Two who receive the same result: the second says who the first is, and waits for it."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.core.errors import RefusedError
from millrace.extensions.pack import pack_transfer, result_files
from millrace.extensions.pack.pack_receiver import ReceivingFolder

#: Longest wait for an event, in seconds.
LONG = 240

#: Takes what is received, and gives it up when it is told so.
FIRST = """
import sys
from pathlib import Path
from millrace.extensions.pack.pack_receiver import ReceivingFolder
place = ReceivingFolder(Path(sys.argv[1]))
held = place.acquire_lock(0.0, print)
place.pack.write_bytes(b"begin")
print("taken", flush=True)
sys.stdin.readline()
place.remove()
held.close()
"""


@pytest.fixture
def first(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", FIRST, str(tmp_path / "hits")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "taken\n"
        yield process
        process.kill()


def test_second_receiver_names_the_first(first: subprocess.Popen[str], tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(RefusedError, match=rf"hits: another millrace \(process {first.pid} on .*\) is receiving this"):
        ReceivingFolder(tmp_path / "hits").acquire_lock(0.0, said.append)
    assert len(said) == 1 and f"process {first.pid} on" in said[0] and "waiting" in said[0]
    assert ReceivingFolder(tmp_path / "hits").pack.read_bytes() == b"begin"


def test_second_receiver_continues_after_the_first(first: subprocess.Popen[str], tmp_path: Path) -> None:
    place = ReceivingFolder(tmp_path / "hits")

    def end(_: str) -> None:
        assert first.stdin
        first.stdin.write("end\n")
        first.stdin.flush()

    held = place.acquire_lock(LONG, end)
    assert place.folder.is_dir() and not place.pack.exists()
    place.remove()
    held.close()
    assert not place.folder.exists()


def test_waiting_receiver_keeps_the_folder(tmp_path: Path) -> None:
    place = ReceivingFolder(tmp_path / "hits")
    held = place.acquire_lock(0.0, print)
    (place.folder / "of another one").touch()
    place.remove()
    held.close()
    assert [path.name for path in place.folder.iterdir()] == ["of another one"]


def test_refused_send_keeps_files_of_an_earlier_start(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    result_files.pack_traces_or_plain([tmp_path / "a", tmp_path / "b"], tmp_path / "two.mrp")
    sent = io.BytesIO()
    pack_transfer.write_line(sent, pack_transfer.ResumePosition(0))
    for piece in ((tmp_path / "two.mrp").read_bytes(), b""):
        pack_transfer.write_piece(sent, piece)
    place = ReceivingFolder(tmp_path / "hits")
    for is_begun in (False, True):
        command = [sys.executable, "-m", "millrace", "receive", "-o", "hits"]
        told = subprocess.run(command, cwd=tmp_path, input=sent.getvalue(), capture_output=True, timeout=540)
        assert (told.returncode, b"the pack has 2 outputs" in told.stderr) == (2, True), told.stderr
        assert place.folder.exists() == is_begun
        # What an earlier start has regenerated stays.
        place.work.mkdir(parents=True, exist_ok=True)
    assert not (tmp_path / "hits").exists()
