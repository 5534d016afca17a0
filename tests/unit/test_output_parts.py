"""Parts of an output, written by whoever is told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace import _core
from millrace.core.errors import CorruptError
from millrace.core.tool_use import OutputUse
from millrace.output.output_parts import ExtentWriter, OutputPart, explain_lone_writer, read_inode_number

OUTPUTS = (OutputUse(name="out", path="out"), OutputUse(name="other", path="other"))

CONTENTS = (b"first\n", b"", b"third, and longer\n", bytes(range(256)) * 9000)


class Site:
    """A folder with two outputs, and a file of blocks in the place of a journal."""

    def __init__(self, folder: Path, *, lasting: bool = False) -> None:
        self.folder, self.happened = folder, threading.Event()
        (folder / "journal").write_bytes(b"".join(CONTENTS))
        for output in OUTPUTS:
            (folder / output.path).write_bytes(b"")
        inodes = {stream: (folder / output.path).stat().st_ino for stream, output in enumerate(OUTPUTS)}
        self.writer = ExtentWriter(OUTPUTS, folder, inodes, lasting=lasting, seconds=0.05, wake=self.happened.set)

    def block(self, which: int, checksum: int | None = None) -> _core.OutputPiece:
        content = CONTENTS[which]
        at = sum(map(len, CONTENTS[:which]))
        crc = _core.crc32c(content) if checksum is None else checksum
        return _core.OutputPiece(self.folder / "journal", (0, b"", at, len(content), crc), 1, None, len(content))

    def wait(self) -> None:
        assert self.happened.wait(300)
        self.happened.clear()


@pytest.fixture(params=[False, True], ids=["", "lasting"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    found = Site(tmp_path, lasting=request.param)
    yield found
    if not found.writer.error:
        found.writer.close()


def test_blocks_are_written_at_their_offsets(site: Site) -> None:
    """They are reported once they are on disk."""
    large = len(CONTENTS[3])
    site.writer.add_part(OutputPart(0, 1, [(large, site.block(0)), (large + 6, site.block(2))]))
    site.writer.add_part(OutputPart(1, 2, [(0, site.block(0)), (6, site.block(1)), (6, site.block(0))]))
    site.writer.add_part(OutputPart(0, 3, [(0, site.block(3))]))
    parts, safe = [], []
    while len(safe) < 3:
        site.wait()
        for written in site.writer.pop_written():
            parts += written.parts
            safe += written.safe
            assert set(safe) <= set(parts)
    assert parts == [(0, 1), (1, 2), (0, 3)]
    assert (site.folder / "out").read_bytes() == CONTENTS[3] + CONTENTS[0] + CONTENTS[2]
    assert (site.folder / "other").read_bytes() == 2 * CONTENTS[0]


def test_held_part_is_written_in_its_turn(site: Site) -> None:
    large = len(CONTENTS[3])
    site.writer.add_part(OutputPart(0, 2, [(large, site.block(0)), (large + 6, site.block(2))], held=True))
    site.writer.add_part(OutputPart(0, 1, [(0, site.block(3))]))
    site.wait()
    assert site.writer.pop_written()[0].parts == [(0, 1)]
    assert (site.folder / "out").read_bytes() == CONTENTS[3]
    (site.folder / "journal").write_bytes(b"fetched before")
    site.writer.release_part(0, 2)
    parts = []
    while not parts:
        site.wait()
        parts = [part for written in site.writer.pop_written() for part in written.parts]
    assert parts == [(0, 2)]
    assert (site.folder / "out").read_bytes() == CONTENTS[3] + CONTENTS[0] + CONTENTS[2]


def test_block_unlike_the_committed_one_is_an_error(site: Site) -> None:
    site.writer.add_part(OutputPart(0, 1, [(0, site.block(0, checksum=1))]))
    site.wait()
    assert isinstance(site.writer.error, CorruptError)
    assert "checksum" in str(site.writer.error)


def test_nothing_is_written_after_a_silent_coordinator(site: Site) -> None:
    site.writer.renew_lease(0.0)
    site.writer.add_part(OutputPart(0, 1, [(0, site.block(0))]))
    site.wait()
    assert isinstance(site.writer.error, TimeoutError)
    assert (site.folder / "out").read_bytes() == b""


def test_file_of_a_later_start_is_not_written(site: Site) -> None:
    new = site.folder / "new"
    new.write_bytes(b"")
    new.rename(site.folder / "out")
    site.writer.add_part(OutputPart(0, 1, [(0, site.block(0))]))
    site.wait()
    assert isinstance(site.writer.error, CorruptError)
    assert "out: is another file now" in str(site.writer.error)
    assert (site.folder / "out").read_bytes() == b""


def test_only_plain_files_beside_the_run_directory_are_shared(tmp_path: Path) -> None:
    run_dir = tmp_path / "out.millrace"
    run_dir.mkdir()
    (tmp_path / "out").touch()
    (tmp_path / "fifo").symlink_to("/dev/null")

    def why(**what: str) -> str:
        return explain_lone_writer(OutputUse(**{"name": "out", "path": "out", **what}), tmp_path, run_dir)  # type: ignore[arg-type]

    assert why() == ""
    assert why(path="-") == why(path="fifo") == why(path="missing") == "it is not a regular file"
    assert "as a whole" in why(layout="directory")
    assert why(join="blast-xml") == why(join="hmmer-report") == why(join="sam") == ""
    assert "one by one" in why(join="prodigal:gff")
    volatile = OutputUse(name="out", path="out", volatile=("^# Time.*",))
    assert explain_lone_writer(volatile, tmp_path, run_dir) == ""
    (tmp_path / "second-name").hardlink_to(tmp_path / "out")
    assert "two runs" in explain_lone_writer(volatile, tmp_path, run_dir)
    assert "another filesystem" in explain_lone_writer(OUTPUTS[0], tmp_path, Path("/proc"))


def test_file_is_identified_by_its_inode(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    (tmp_path / "link").symlink_to("a")
    assert read_inode_number(tmp_path / "a", tmp_path) == read_inode_number(tmp_path / "link", tmp_path)
    assert read_inode_number(tmp_path / "a", tmp_path) != read_inode_number(tmp_path / "b", tmp_path)
    assert read_inode_number(tmp_path / "missing", tmp_path) is None
    assert read_inode_number(tmp_path / "a", Path("/proc")) is None
