"""Files along a chain: the same bytes at all, whatever their sizes; errors stay where they are."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.core.errors import CorruptError
from millrace.storage.broadcast import BroadcastRelay


@dataclass
class Wire:
    """Between two neighbours: what was sent waits for a receiver, as large messages do."""

    sent: deque[tuple[memoryview, list[bool]]] = field(default_factory=deque)
    awaited: deque[tuple[memoryview, list[bool]]] = field(default_factory=deque)
    #: Changes a piece on its way, by its number.
    spoil: int = -1
    _n: int = 0

    def match(self) -> None:
        while self.sent and self.awaited:
            (content, left), (buffer, here) = self.sent.popleft(), self.awaited.popleft()
            buffer[:] = content
            if self._n == self.spoil:
                buffer[0] ^= 1
            self._n += 1
            left[0] = here[0] = True


@dataclass
class Transfer:
    wire: Wire
    mine: list[bool]

    def Test(self) -> bool:
        self.wire.match()
        return self.mine[0]


@dataclass
class Neighbours:
    before: Wire | None
    after: Wire | None

    def receive(self, buffer: memoryview) -> Transfer:
        assert self.before
        self.before.awaited.append((buffer, mine := [False]))
        return Transfer(self.before, mine)

    def send(self, buffer: memoryview) -> Transfer:
        assert self.after
        self.after.sent.append((buffer, mine := [False]))
        return Transfer(self.after, mine)


def run(relays: Sequence[BroadcastRelay]) -> None:
    deadline = time.monotonic() + 300
    try:
        while not all(relay.is_done for relay in relays):
            moved = [relay.make_progress() for relay in relays]
            if not any(moved):
                time.sleep(0.0001)
            assert time.monotonic() < deadline
    finally:
        for relay in relays:
            relay.close()


def chain(
    folder: Path,
    contents: Sequence[bytes],
    n: int,
    *,
    piece: int = 64,
    depth: int = 3,
    wires: Sequence[Wire] = (),
    in_memory: bool = False,
) -> tuple[list[BroadcastRelay], list[list[Path]], list[list[int | None]]]:
    sources, sizes = [folder / f"source{k}" for k in range(len(contents))], [len(each) for each in contents]
    for source, content in zip(sources, contents, strict=True):
        source.write_bytes(content)
    links: list[Wire | None] = [None, *(wires or [Wire() for _ in range(n - 1)]), None]
    paths = [[folder / f"copy{node}-{k}" for k in range(len(contents))] for node in range(n)]
    fds: list[list[int | None]] = [[os.open(path, os.O_RDWR | os.O_CREAT) for path in each] for each in paths]
    relays = [
        BroadcastRelay(
            sizes, Neighbours(links[node], links[node + 1]), fds[node], sources=[str(path) for path in sources] if not node else (),
            last=node == n - 1, piece=piece, depth=depth, in_memory=in_memory,
        ) for node in range(n)
    ]  # fmt: skip
    return relays, paths, fds


@settings(max_examples=15)
@given(
    contents=st.lists(st.binary(min_size=1, max_size=400), min_size=1, max_size=6), n=st.integers(1, 5),
    piece=st.integers(1, 100), depth=st.integers(1, 4), in_memory=st.booleans(), place=st.sampled_from([None, "/dev/shm"]),
)  # fmt: skip
def test_all_nodes_receive_the_same_bytes(
    contents: list[bytes], n: int, piece: int, depth: int, in_memory: bool, place: str | None
) -> None:
    with tempfile.TemporaryDirectory(dir=place) as folder:
        relays, paths, fds = chain(Path(folder), contents, n, piece=piece, depth=depth, in_memory=in_memory)
        run(relays)
        for each in paths:
            assert [path.read_bytes() for path in each] == contents
        assert not any(relay.copy_error for relay in relays)
        for each_fd in itertools.chain(*fds):
            os.close(each_fd or 0)


def test_python_with_old_headers_forwards_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "RWF_NOWAIT")
    relays, paths, fds = chain(tmp_path, [b"abc" * 100, b"d"], 3)
    run(relays)
    assert [[path.read_bytes() for path in each] for each in paths] == [[b"abc" * 100, b"d"]] * 3
    assert not any(relay.copy_error for relay in relays)
    for each_fd in itertools.chain(*fds):
        os.close(each_fd or 0)


def test_node_that_keeps_nothing_forwards_everything(tmp_path: Path) -> None:
    relays, paths, fds = chain(tmp_path, [b"abc" * 100], 3)
    fds[1][0] = None
    run(relays)
    assert [paths[node][0].stat().st_size for node in range(3)] == [300, 0, 300]


@pytest.mark.parametrize("in_memory", [False, True])
def test_node_that_cannot_write_forwards_everything(tmp_path: Path, in_memory: bool) -> None:
    relays, paths, fds = chain(tmp_path, [b"abc" * 100], 3, in_memory=in_memory)
    fds[1][0] = os.open(os.devnull, os.O_RDONLY)
    run(relays)
    assert [bool(relay.copy_error) for relay in relays] == [False, True, False]
    assert "Bad file descriptor" in relays[1].copy_error
    assert paths[2][0].read_bytes() == b"abc" * 100


def test_corrupted_bytes_are_detected_by_all_later_nodes(tmp_path: Path) -> None:
    relays, _, _ = chain(tmp_path, [b"abc" * 100], 4, wires=[Wire(), Wire(spoil=2), Wire()])
    run(relays)
    assert [bool(relay.copy_error) for relay in relays] == [False, False, True, True]


@pytest.mark.parametrize("in_memory", [False, True])
def test_shortened_file_is_an_error(tmp_path: Path, in_memory: bool) -> None:
    relays, _, _ = chain(tmp_path, [b"abc" * 100], 2, in_memory=in_memory)
    os.truncate(tmp_path / "source0", 290)
    with pytest.raises(CorruptError, match="it changed while it was copied"):
        run(relays)
