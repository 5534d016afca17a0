"""Who writes which part of an output: whatever is lost when, the file is the blocks one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.cluster.write.collective_strategy import CollectiveExtents
from millrace.cluster.write.rank_strategies import IndividualExtents, MergedExtents
from millrace.scheduler import write_extents
from millrace.scheduler.write_extents import RankWrite, WriteExtents


@dataclass(frozen=True)
class Bytes:
    content: bytes

    @property
    def length(self) -> int:
        return len(self.content)


LATER = write_extents.MAX_WAIT_SECONDS


def block(kilobytes: int) -> Bytes:
    return Bytes(bytes(kilobytes << 10))


def only(writes: list[RankWrite[Bytes]]) -> RankWrite[Bytes]:
    (write,) = writes
    return write


def test_merge_in_turn_writes_on_the_rank_with_most_bytes() -> None:
    """The next rank fetches, and waits for its turn."""
    output = MergedExtents[Bytes](range(3), in_turn=True)
    for kilobytes, holder in ((100, 1), (300, 2), (150, 1)):
        output.add_block(block(kilobytes), holder)
    assert output.issue_writes(0.0) == []
    first = only(output.issue_writes(LATER))
    assert first.rank == 2
    assert [at >> 10 for at, _ in first.pieces] == [0, 100, 400]
    assert not first.held
    output.add_block(block(8192), 2)
    output.add_block(block(1024), 1)
    second = only(output.issue_writes(2 * LATER))
    assert (second.rank, second.pieces[0][0] >> 10, second.held) == (1, 550, True), "rank 2 is busy"
    output.add_block(block(8192), 2)
    third = only(output.issue_writes(2 * LATER))
    assert (third.rank, third.held) == (0, True)
    output.add_block(block(8192), 2)
    assert output.issue_writes(2 * LATER) == [], "nobody is left"
    assert output.release_writes() == []
    output.mark_written(first.number)
    assert output.release_writes() == [second]
    assert output.release_writes() == []
    output.mark_written(second.number)
    assert output.release_writes() == [third]


def test_blocks_of_lost_ranks_go_to_the_least_used_writer() -> None:
    output = MergedExtents[Bytes](range(2))
    for expected in (0, 1, 0, 1):
        output.add_block(block(10), None)
        write = only(output.issue_writes(0.0, last=True))
        assert write.rank == expected
        output.mark_written(write.number)


def test_individual_lets_each_rank_write_its_own_blocks() -> None:
    output = IndividualExtents[Bytes](range(3))
    for holder in (1, 2, 1):
        output.add_block(block(10), holder)
    writes = output.issue_writes(0.0, last=True)
    assert [(write.rank, [at >> 10 for at, _ in write.pieces]) for write in writes] == [(1, [0, 20]), (2, [10])]


def test_collective_includes_every_rank_in_every_round() -> None:
    output = CollectiveExtents[Bytes](range(3))
    output.add_block(block(10), 1)
    writes = output.issue_writes(0.0, last=True)
    assert [(write.rank, len(write.pieces)) for write in writes] == [(0, 0), (1, 1), (2, 0)]
    output.add_block(block(10), 1)
    output.mark_written(writes[0].number)
    output.mark_written(writes[1].number)
    assert output.issue_writes(0.0, last=True) == []
    output.mark_written(writes[2].number)
    assert len(output.issue_writes(0.0, last=True)) == 3
    assert output.release_writes() == []


def test_an_extent_ends_when_it_is_large_enough() -> None:
    output = MergedExtents[Bytes](range(1))
    n = write_extents.MAX_EXTENT_BYTES // (1 << 20)
    for _ in range(n + 5):
        output.add_block(block(1024), 0)
    assert len(only(output.issue_writes(0.0)).pieces) == n


def test_merge_side_by_side_shares_the_backlog() -> None:
    output = MergedExtents[Bytes](range(4))
    for k in range(40):
        output.add_block(block(1024), k % 3)
    writes = output.issue_writes(0.0)
    assert sorted(write.rank for write in writes) == [0, 1, 2, 3]
    assert not any(write.held for write in writes)
    assert [len(write.pieces) for write in writes] == [10] * 4
    assert output.has_written_all is False
    for write in writes:
        output.mark_written(write.number)
    assert output.has_written_all


WAYS: dict[str, Callable[[range], WriteExtents[Bytes]]] = {
    "merge": MergedExtents,
    "merge, in turn": lambda ranks: MergedExtents(ranks, in_turn=True),
    "individual": IndividualExtents,
    "collective": CollectiveExtents,
}


@pytest.mark.parametrize("way", WAYS)
@given(data=st.data())
def test_file_is_complete_whichever_rank_is_lost(way: str, data: st.DataObject) -> None:
    ranks = range(data.draw(st.integers(1, 4), "ranks"))
    output = WAYS[way](ranks)
    alive, expected, now = set(ranks), b"", 0.0
    in_flight: list[RankWrite[Bytes]] = []
    held: list[RankWrite[Bytes]] = []
    # What is on disk; and in each node's memory, which is lost with it.
    file, memory = bytearray(), {rank: dict[int, RankWrite[Bytes]]() for rank in ranks}

    def put(write: RankWrite[Bytes]) -> None:
        for at, one in write.pieces:
            file.extend(bytes(max(0, at + one.length - len(file))))
            file[at : at + one.length] = one.content

    def begin(writes: list[RankWrite[Bytes]]) -> None:
        in_flight.extend(write for write in writes if not write.held)
        held.extend(write for write in writes if write.held)
        for write in output.release_writes():
            held.remove(write)
            in_flight.append(write)

    for step in range(data.draw(st.integers(0, 30), "steps")):
        now += LATER / 2
        match data.draw(st.sampled_from(["add", "add", "turn", "write", "write", "sync", "lose"])):
            case "add":
                one = Bytes(data.draw(st.sampled_from([b"", b"x", b"abcde"])) + bytes([step]))
                output.add_block(one, data.draw(st.sampled_from([None, *ranks])))
                expected += one.content
            case "turn":
                begin(output.issue_writes(now))
                assert all(write.rank in alive for write in in_flight + held)
            case "write" if in_flight:
                write = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1)))
                memory[write.rank][write.number] = write
                output.mark_written(write.number)
            case "sync":
                rank = data.draw(st.sampled_from(sorted(alive)))
                for write in memory[rank].values():
                    put(write)
                output.mark_synced(memory[rank])
                memory[rank].clear()
            case "lose" if len(alive) > 1:
                rank = data.draw(st.sampled_from(sorted(alive - {0})))
                if way == "collective":
                    continue
                alive.discard(rank)
                in_flight = [write for write in in_flight if write.rank != rank]
                held = [write for write in held if write.rank != rank]
                memory[rank].clear()
                output.remove_rank(rank)
    while not output.has_written_all:
        begin(output.issue_writes(now, last=True))
        for write in in_flight:
            memory[write.rank][write.number] = write
            output.mark_written(write.number)
        in_flight.clear()
    for write in output.list_unsynced():
        put(write)
    assert output.size == len(expected)
    assert bytes(file) == expected


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(0, 2)), max_size=20))
def test_merge_in_turn_never_leaves_a_hole(blocks: list[tuple[int, int, int]]) -> None:
    """After each block so many turns; what is written is always the beginning of the file, also if a node is lost."""
    output = MergedExtents[Bytes](range(4), in_turn=True)
    reached = 0
    may: list[RankWrite[Bytes]] = []
    for size, holder, turns in [*blocks, (0, 0, 2 * len(blocks) + 2)]:
        output.add_block(Bytes(bytes(size)), holder)
        for _ in range(turns):
            may += [write for write in output.issue_writes(0.0, last=True) if not write.held]
            may += output.release_writes()
            if may:
                write = may.pop()
                assert not may, "one at a time"
                assert write.pieces[0][0] == reached
                reached += write.size
                output.mark_written(write.number)
                output.mark_synced([write.number])
        if size == 9 and holder:  # lost with what it holds, or writes
            may = [write for write in may if write.rank != holder]
            output.remove_rank(holder)
    assert output.has_written_all
    assert reached == output.size
