"""How HMMER's targets are shared out among fragments."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from millrace.adapters.hmmer.backend import HmmerBackend
from millrace.adapters.hmmer.fragments import cut_targets
from millrace.core.tool_use import DatabaseFragment, FragmentPlan, HmmerTargets, OutputUse


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(1, 20))
def test_fragments_are_all_targets_in_order(sizes: list[int], n: int) -> None:
    fragments = cut_targets(list(enumerate(accumulate(sizes), start=1)), [1] * n)
    assert 1 <= len(fragments) <= n
    assert [last for _, last, _ in fragments] == [first for first, _, _ in fragments[1:]] + [len(sizes)]
    assert fragments[0][0] == 0
    assert all(size == sum(sizes[first:last]) and first < last for first, last, size in fragments)
    # None is larger than a share and the target that fills it.
    assert all(size <= sum(sizes) / n + max(sizes) for _, _, size in fragments[: n - 1])


@given(st.integers(1, 50), st.integers(1, 50))
def test_equal_targets_make_equal_fragments(n: int, size: int) -> None:
    fragments = cut_targets([(k, k * size) for k in range(1, 10 * n + 1)], [1] * n)
    assert [part for _, _, part in fragments] == [10 * size] * n


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 50))
def test_fragments_have_the_requested_sizes(shares: list[int], size: int) -> None:
    fragments = cut_targets([(k, k * size) for k in range(1, sum(shares) + 1)], shares)
    assert [part for _, _, part in fragments] == [share * size for share in shares]


def targets(source: Path, *begins: int) -> FragmentPlan:
    """Of a file of 4 sequences, in fragments that begin at these."""
    edges = zip(begins, (*begins[1:], 4), strict=True)
    fragments = tuple(DatabaseFragment(first=first, last=last, size=1, argv=()) for first, last in edges)
    found = OutputUse(name="found", path="-", stdout=True)
    about = HmmerTargets(source=str(source))
    return FragmentPlan(fragments=fragments, found=found, finish=(), database="db.fa", about=about)


def test_name_offsets_are_complete_for_all_processes(tmp_path: Path) -> None:
    """They make or read them at the same time."""
    source, shared = tmp_path / "db.fa", tmp_path / "names"
    source.write_text("".join(f">s{k}\nAC\n" for k in range(4)))

    def make(number: int) -> tuple[dict[str, bytes], str]:
        # A start with three fragments while processes of an earlier one, with two, are still at work.
        backend = HmmerBackend()
        moved = backend.relocate_files(
            targets(source, *((0, 2), (0, 1, 3))[number % 2]), tmp_path, tmp_path, shared, ()
        )
        index = Path(backend.prepare_fragments(moved, tmp_path / f"own{number}", tmp_path, {})[0])
        assert isinstance(moved.about, HmmerTargets)
        names = Path(moved.about.names)
        assert index.parent == tmp_path / f"own{number}", "tools do not see the other one"
        assert index.read_bytes() == (names / index.name).read_bytes()
        return {path.name: path.read_bytes() for path in names.glob("[!.]*")}, str(names)

    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(make, range(40))]
    assert len({index for _, index in found}) == 2
    for number, (files, _) in enumerate(found):
        sizes = ((2, 2), (1, 2, 1))[number % 2]
        assert [len(files[f"names-{k}"]) for k in range(len(sizes))] == [32 * n for n in sizes]
        assert sorted(files) == [*(f"names-{k}" for k in range(len(sizes))), "starts.ssi"]
