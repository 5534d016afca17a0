"""How many fragments: never where they only cost, as many as slots need, small enough for the memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from millrace.adapters.adapter_base import MIN_FRAGMENT_CELLS, DatabaseFacts
from millrace.core.errors import RefusedError
from millrace.core.job import MAX_FRAGMENTS, parse_fragments
from millrace.core.tool_use import CostHint, InputUse
from millrace.host import memory_limits
from millrace.planning.fragment_planning import (
    DATABASE_SHARE,
    OVERLAP,
    FragmentDecision,
    decide_by_queries,
    decide_fragments,
    taper_fragment_sizes,
)
from millrace.planning.input_sniffing import QueryEstimate, sample_queries

GB = 1 << 30

#: A pass over the database for every 10,000 residues, as blastp.
PASSES = CostHint(unit="residues", startup_seconds=0.06, pass_units=10_000)

#: The same where lengths do not tell which query takes long.
BLASTN = replace(PASSES, spread=41.0)


def queries(records: int, mean: int, longest: int = 0, complete: bool = True) -> QueryEstimate:
    return QueryEstimate(records=records, units=records * mean, longest=longest or mean, complete=complete)


def database(size: int, entries: int = 1_000_000) -> DatabaseFacts:
    return DatabaseFacts(entries=entries, residues=size, bytes=size)


def auto(base: DatabaseFacts, seen: QueryEstimate | None, slots: int, memory_bytes: int = 64 * GB) -> FragmentDecision:
    return decide_fragments((0, 0), base, seen, slots, memory_bytes, PASSES)


def test_queries_that_fill_the_slots_make_one_fragment() -> None:
    assert auto(database(GB), queries(10_000, 300), 128) == FragmentDecision(
        why="10,000 queries keep 128 slots busy, and the database fits into memory"
    )
    assert auto(database(GB), queries(200_000, 300, complete=False), 128).why.startswith("about 200,000 queries")


def test_one_long_query_gets_rounds_of_ever_shorter_tasks() -> None:
    decision = auto(database(80_000_000), queries(1, 2000), 2)
    assert decision.sizes == (2, 2, 1, 1, 1, 1) and "1 query with 2.0 k residues" in decision.why
    assert "6 fragments make that 2 times faster at best" in decision.why
    assert auto(database(100 * GB), queries(1, 2000), 128).n == 768
    assert auto(database(100 * GB), queries(3, 2000), 8).sizes[:6] == (256, 256, 256, 128, 128, 128)


def test_one_dominant_query_is_searched_in_fragments() -> None:
    """It is longer than all others together."""
    # It is six times as long as what a slot has to do: six slots work at it.
    assert auto(database(10 * GB), queries(100, 400, longest=30_000), 8).sizes[:7] == (*(256,) * 6, 128)


def test_more_slots_than_a_search_can_be_cut_for_get_equal_parts() -> None:
    decision = auto(database(60_000_000), queries(1, 2000), 100)
    assert decision.sizes == (1,) * 6 and "6 fragments make that 6 times faster at best" in decision.why


def test_queries_of_one_pass_are_one_search() -> None:
    short = QueryEstimate(records=6, units=5091, longest=1200, ends=(800, 1600, 2400, 3600, 4800, 5091))
    found = decide_fragments((0, 0), database(GB), short, 16, 64 * GB, PASSES, pass_residues=10_002)
    assert found.n >= 16 and "6 queries in 1 pass with 5.1 k residues" in found.why
    assert auto(database(GB), short, 3).why.startswith("6 queries keep 3 slots busy")
    many = queries(1000, 400)
    assert (
        "1,000 queries in 40 passes keep 8 slots busy"
        in decide_fragments((0, 0), database(GB), many, 8, GB * 64, PASSES, pass_residues=10_002).why
    )
    assert decide_fragments((0, 0), database(GB), many, 128, GB * 64, PASSES, pass_residues=10_002).n > 1


def test_costly_fragments_need_a_larger_gain() -> None:
    one, base = queries(1, 5000), database(GB)
    for work, slots, pays in ((1.3, 2, True), (1.7, 2, False), (1.7, 4, True)):
        assert (auto(replace(base, work=work), one, slots).n > 1) is pays, (work, slots)
    assert "too short" in auto(replace(base, least=5000 * GB), one, 8).why


def test_short_search_is_not_fragmented() -> None:
    assert "too short" in auto(database(3_000_000), queries(1, 300), 8).why
    assert auto(database(GB), queries(1, 2000), 1).n == 1


def test_large_database_is_cut_to_fit_the_memory() -> None:
    """The fragments at work fit, not all of them."""
    decision = auto(database(100 * GB), queries(5000, 400), 16, 32 * GB)
    assert decision.n == 6 and "memory" in decision.why
    # One pass reads everything once, in fragments or not.
    assert auto(database(100 * GB), queries(20, 400), 2, 32 * GB).n == 1
    # What is small is soon read again, and each fragment costs a start.
    assert "read it again" in auto(database(GB // 4), queries(200, 400), 2, GB // 8).why


def test_spread_of_times_needs_fragments_for_few_queries() -> None:
    """Of 5,000 queries, mpiBLAST-PIO's longest took 41 times the mean, whatever its length."""

    def decide(records: int, slots: int, cost: CostHint = BLASTN) -> FragmentDecision:
        return decide_fragments((0, 0), database(10 * GB), queries(records, 1000), slots, 64 * GB, cost)

    found = decide(5000, 1024)
    assert (found.n, found.is_for_tail) == (36, True) and "may take 40 times the mean" in found.why
    assert decide(5000, 1024, PASSES).n == decide(500_000, 1024).n == 1
    few = decide(5000, 128).sizes
    assert set(few[:-1]) == {4, 3} and few[-1] == 1, "the first search tells which queries are long, and costs little"
    assert auto(database(10 * GB), queries(100, 400, longest=30_000), 8).is_for_tail
    assert not auto(database(80_000_000), queries(1, 2000), 2).is_for_tail


@given(records=st.integers(1, 100_000), slots=st.integers(2, 8), seconds=st.floats(0.001, 300.0))
def test_small_job_is_not_cut_for_the_spread(records: int, slots: int, seconds: float) -> None:
    """On few cores, unless it lasts minutes, and its queries are so few that the longest one would end last."""
    base = replace(database(10 * GB), least=1000 * 10 * GB / seconds, work=1.6)
    found = decide_fragments((0, 0), base, queries(records, 1000), slots, 64 * GB, BLASTN)
    plain = decide_fragments((0, 0), base, queries(records, 1000), slots, 64 * GB, PASSES)
    if seconds < 9.9 or slots < 8 or records > 200:
        assert found.sizes == plain.sizes
    elif found.sizes != plain.sizes:
        assert found.sizes[-1] / sum(found.sizes) <= 0.1, "what short queries cost more"


@pytest.mark.parametrize(("seconds", "is_cut"), [(5.0, False), (30.0, True)])
def test_long_query_among_short_ones_is_cut_if_it_pays(seconds: float, is_cut: bool) -> None:
    base = replace(database(GB), least=30_000 * GB / seconds)
    assert (auto(base, queries(100, 400, longest=30_000), 8).n > 1) is is_cut


def test_requested_fragments_are_limited_by_entries() -> None:
    def asked(number: int, size: int, entries: int = 1000) -> int:
        return decide_fragments((number, size), database(GB, entries), None, 4, GB, PASSES).n

    assert [asked(7, 0), asked(7, 0, 3), asked(0, 300 << 20), asked(0, 2 * GB)] == [7, 3, 4, 1]
    assert asked(0, 1 << 10, 10**6) == MAX_FRAGMENTS


def test_pipe_or_empty_input_is_not_fragmented() -> None:
    assert "pipe" in auto(database(GB), None, 8).why
    assert auto(database(GB), queries(0, 0), 8).n == 1


def test_fragments_for_memory_and_slots_are_equal_sized() -> None:
    """So the largest fits."""
    decision = auto(database(100 * GB), queries(150, 400), 128, 32 * GB)
    assert decision.n > 100 * GB / (32 * GB) and set(decision.sizes) == {1}


@given(
    size=st.integers(1, 2000 * GB), entries=st.integers(1, 10**9), records=st.integers(1, 10**6),
    mean=st.integers(1, 100_000), slots=st.integers(1, 20_000), free=st.integers(1 << 28, 1 << 42),
    longer=st.integers(1, 1000),
)  # fmt: skip
def test_fragment_decisions_keep_their_bounds(
    size: int, entries: int, records: int, mean: int, slots: int, free: int, longer: int
) -> None:
    base, seen = database(size, entries), queries(records, mean, mean * min(longer, records))
    decision = auto(base, seen, slots, free)
    assert 1 <= decision.n <= min(entries, MAX_FRAGMENTS) and decision.why
    fits, busy = size <= DATABASE_SHARE * (free / 4), records % slots == 0 and longer * slots <= records
    if fits and busy:
        assert decision.n == 1
    at_work = max(OVERLAP, -(-slots // records))
    if "one after another" in decision.why and 1 < decision.n < min(entries, MAX_FRAGMENTS):
        assert size / decision.n * at_work <= free
    if decision.n > 1 and fits:
        assert records * mean <= 4 * slots * seen.longest, "queries alone would do"
        # The first is at most half of what a slot has to do, unless there are more slots than the search has parts.
        assert min(decision.sizes) / sum(decision.sizes) * seen.longest * size >= 0.99 * MIN_FRAGMENT_CELLS
    first = decide_by_queries((0, 0), base, seen, slots, free, PASSES)
    assert first is None or first == decision, "what is counted has a say"
    assert first or decision.n > 1 or "too short" in decision.why or entries == 1


@given(together=st.integers(1, 5000), affordable=st.integers(2, 10**6), most=st.integers(2, MAX_FRAGMENTS))
def test_fragments_get_smaller_and_the_last_are_worth_a_search(together: int, affordable: int, most: int) -> None:
    sizes = taper_fragment_sizes(together, affordable, most)
    assert 2 <= len(sizes) <= min(most, affordable) and list(sizes) == sorted(sizes, reverse=True)
    assert min(sizes) * affordable >= sum(sizes)
    if len(sizes) >= 2 * together >= 4:
        assert 2 * together * max(sizes) <= sum(sizes), "one slot late with the first could not be made up for"
    if len(sizes) > together > 1:
        assert len(sizes) % together == 0


def test_queries_are_counted_or_estimated_from_the_start(tmp_path: Path) -> None:
    item = InputUse(path="q.fa", format="fasta")
    (tmp_path / "q.fa").write_text(">a\nMKV\n>b\nMKVMKV\n")
    assert sample_queries(item, tmp_path) == QueryEstimate(records=2, units=9, longest=6, ends=(3, 9))
    n = 3_000
    (tmp_path / "q.fa").write_text(f">a\n{'MKV' * 2000}\n" * n)
    found = sample_queries(item, tmp_path)
    assert found and not found.complete and found.longest == 6000
    assert 0.99 * n < found.records < 1.01 * n and 0.99 * 6000 * n < found.units < 1.01 * 6000 * n
    assert sample_queries(InputUse(path="none", format="fasta"), tmp_path) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("auto", (0, 0)), ("1", (1, 0)), ("16", (16, 0)), ("500M", (0, 500 << 20)), ("2gb", (0, 2 << 30))],
)
def test_the_option(text: str, expected: tuple[int, int]) -> None:
    assert parse_fragments(text) == expected


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "5000", "1.5G", "10B"])
def test_the_option_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="--fragments"):
        parse_fragments(text)


def test_the_limit_of_a_control_group_counts(tmp_path: Path) -> None:
    proc, root = tmp_path / "cgroup", tmp_path / "fs"
    inner = root / "memory" / "job" / "step"
    inner.mkdir(parents=True)
    proc.write_text("9:memory:/job/step\n3:cpu,cpuacct:/\n0::/\n")
    (inner / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (inner.parent / "memory.limit_in_bytes").write_text(f"{300 << 20}\n")
    assert memory_limits.read_usable_memory(proc, root) == (300 << 20, "memory limit of the control group")
    unified = root / "job"
    unified.mkdir()
    (unified / "memory.max").write_text("max\n")
    proc.write_text("0::/job\n")
    assert memory_limits.read_usable_memory(proc, root)[1] == "memory of this machine"
    (unified / "memory.max").write_text(f"{200 << 20}\n")
    assert memory_limits.read_usable_memory(proc, root)[0] == 200 << 20
