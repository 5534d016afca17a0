"""When the preliminary search of a fragment is that of the whole: never with an E-value that could drop a hit of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.tools.blast_preliminary import RESTRICTED, STRETCH, Preliminary, preliminary

VERSION = "blastp: 2.12.0+"


@given(
    evalue=st.floats(1e-200, 1e6), mode=st.sampled_from(sorted(STRETCH)), n=st.integers(1, 10**9),
    mean=st.integers(10, 1000),
)  # fmt: skip
def test_the_threshold_is_that_of_the_whole_or_a_hair_above_it(evalue: float, mode: str, n: int, mean: int) -> None:
    counted = (n, n * mean)
    same = preliminary("blastp", {"evalue": repr(evalue), "comp_based_stats": mode}, VERSION, counted)
    if evalue > RESTRICTED:
        assert same is None, "the whole search aligns fully"
        return
    assert same and same.evalue <= RESTRICTED
    # The E-value in the statistics of the whole.
    kept = same.evalue * counted[1] / same.counted[1]
    assert kept >= STRETCH[mode] * evalue * (1 - 1e-12)
    assert kept <= STRETCH[mode] * evalue * (1 + 2 / same.counted[1] + 1e-12)
    assert same.counted == counted or same.evalue == RESTRICTED


@pytest.mark.parametrize(
    ("program", "options", "version"),
    [
        ("blastx", {}, "blastx: 2.12.0+"),
        ("blastp", {"task": "blastp-short"}, VERSION),
        ("blastp", {"matrix": "BLOSUM45"}, VERSION),
        ("blastp", {"dbsize": "1000"}, VERSION),
        ("blastp", {"comp_based_stats": "2u"}, VERSION),
        ("blastp", {"evalue": "ten"}, VERSION),
        ("blastp", {"evalue": "0"}, VERSION),
        ("blastp", {"evalue": "nan"}, VERSION),
        ("blastp", {}, "blastp: 2.13.0+"),
        ("blastp", {}, "blastp: 12.12.0+"),
        ("blastp", {}, ""),
    ],
)
def test_what_was_not_compared_is_aligned_fully(program: str, options: dict[str, str], version: str) -> None:
    assert preliminary(program, options, version, (1000, 500_000)) is None


def test_a_database_of_next_to_nothing() -> None:
    assert preliminary("blastp", {}, VERSION, (1, 4)) is None
    assert preliminary("blastp", {}, VERSION, (1, 5)) == Preliminary(10.0, (1, 1))
