"""Small files of CLOG-2, written by the description of the format in the sources of MPE2 (MPICH, ``src/mpe2/src/logging``).

Nothing that Debian has writes such files, so these are made as ``CLOG_Merger_t`` makes them (version CLOG-02.44): a preamble of texts,
blocks that are filled in the same memory one after the other, and the table of communicators.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

STATE, BARE, CARGO, MESSAGE, COMMUNICATOR, SHIFT = 2, 5, 6, 7, 9, 11
_END_OF_LOG, _END_OF_BLOCK = 0, 1

#: Bytes of a header, and of the least end of a block.
_HEADER = 24


@dataclass
class Clog2Writer:
    """What ``CLOG_Merger_save_rec`` does, for records in the order of time."""

    block_bytes: int = 65536
    big_endian: bool = True
    memory: bytearray = field(init=False)
    blocks: bytes = b""
    at: int = 0

    def __post_init__(self) -> None:
        self.memory = bytearray(self.block_bytes)

    def record(self, time: float, rank: int, kind: int, body: bytes = b"") -> None:
        """Add a record; the block before ends if it and an end would not fit."""
        if self.at + _HEADER + len(body) + _HEADER >= self.block_bytes:
            self._put(time, 0, _END_OF_BLOCK, b"")
            self._flush()
        self._put(time, rank, kind, body)

    def _put(self, time: float, rank: int, kind: int, body: bytes) -> None:
        head = struct.pack((">" if self.big_endian else "<") + "diiii", time, 0, rank, 0, kind)
        self.memory[self.at : self.at + len(head) + len(body)] = head + body
        self.at += len(head) + len(body)

    def _flush(self) -> None:
        self.blocks += bytes(self.memory)
        self.at = 0

    def numbers(self, *values: int) -> bytes:
        """The numbers of a body, of 32 bits each."""
        return struct.pack((">" if self.big_endian else "<") + f"{len(values)}i", *values)

    def finish(self) -> bytes:
        """The whole file."""
        self._put(1e8, 0, _END_OF_LOG, b"")
        self._flush()
        texts = [
            "CLOG-02.44", "is_big_endian=", "TRUE " if self.big_endian else "FALSE", "is_finalzed=", "TRUE ",
            "block_size=", str(self.block_bytes), "num_buffered_blocks=", "128", "max_comm_world_size=", "4",
            "max_thread_count=", "1", "known_eventID_start=", "0", "user_eventID_start=", "600",
            "known_solo_eventID_start=", "-10", "user_solo_eventID_start=", "5000", "known_stateID_count=", "300",
            "user_stateID_count=", "2", "known_solo_eventID_count=", "0", "user_solo_eventID_count=", "0",
            "commtable_fptr=", "0", str(1 << 30), str(1024 + len(self.blocks)),
        ]  # fmt: skip
        preamble = b"".join(text.encode() + b"\0" for text in texts).ljust(1024, b"\0")
        table = self.numbers(2) + b"".join(bytes(range(32)) + self.numbers(number, 1) for number in range(2))
        return preamble + self.blocks + table


def solver(ranks: int, iterations: int, *, inner: int = 0, seed: int = 1, **form: object) -> bytes:
    """A solver that enters and leaves states and sends to its neighbours, with the jitter of a real one.

    Args:
        inner: Repetitions of two loops within each iteration, of seven steps and of five.
    """
    writer, chance = Clog2Writer(**form), random.Random(seed)  # type: ignore[arg-type]
    for state in range(4):
        texts = b"red".ljust(24, b"\0") + f"state {state}".encode().ljust(32, b"\0") + bytes(40)
        writer.record(0.0, 0, STATE, writer.numbers(300 + state, 600 + 2 * state, 601 + 2 * state, 0) + texts)
    events = []
    for rank in range(ranks):
        writer.record(0.0, rank, COMMUNICATOR, writer.numbers(0, 0, rank, rank) + bytes(range(32)))
        writer.record(0.0, rank, SHIFT, struct.pack(">d" if writer.big_endian else "<d", 0.0))
        now = 0.0
        for iteration in range(iterations):
            steps = [*[*range(7)] * inner, *[*range(7, 12)] * inner] if inner else [0, 1, 2, 3]
            for step in steps:
                for begin in (0, 1):
                    # As MPI_Wtime of a clock of microseconds gives it: seconds of a large number, less a large number.
                    now += max(1, round((40 + 17 * step) * chance.gauss(1, 0.02))) * 2.0**-20
                    events.append((now, rank, BARE, writer.numbers(600 + 2 * step + begin, 0)))
            partner = (rank + 1) % ranks
            events.append((now, rank, MESSAGE, writer.numbers(-101, 0, partner, iteration % 3, 8192, 0)))
    for time, rank, kind, body in sorted(events):
        writer.record(time, rank, kind, body)
    return writer.finish()
