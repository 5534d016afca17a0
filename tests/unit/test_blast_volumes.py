"""Cutting BLAST databases by their index files alone."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.adapters.blast.volumes import NEARBY, cut_volumes, read_volume
from millrace.adapters.blast.volumes import read_lengths as lengths_of
from millrace.core.errors import RefusedError


def write(base: Path, lengths: list[int], version: int = 5) -> None:
    """The index file of a protein volume whose entries have so many residues."""
    texts = [b"a title", *([b"x.pdb"] if version == 5 else []), b"today\0\0\0"]
    data = struct.pack(">2i", version, 1) + (struct.pack(">i", 0) if version == 5 else b"")
    data += b"".join(struct.pack(">i", len(text)) + text for text in texts)
    data += (
        struct.pack(">i", len(lengths)) + struct.pack("<q", sum(lengths)) + struct.pack(">i", max(lengths, default=0))
    )
    offsets = [1]
    for length in lengths:
        offsets.append(offsets[-1] + length + 1)
    headers = range(len(lengths) + 1)
    data += struct.pack(f">{len(offsets)}I", *headers) + struct.pack(f">{len(offsets)}I", *offsets)
    base.with_name(f"{base.name}.pin").write_bytes(data)


@pytest.mark.parametrize("version", [4, 5])
def test_the_head_of_an_index(version: int, tmp_path: Path) -> None:
    write(tmp_path / "db.x", [5, 7], version)
    volume = read_volume(tmp_path / "db.x", "p")
    assert (volume.title, volume.entries, volume.residues, volume.parsed) == ("a title", 2, 12, False)


@given(
    volumes=st.lists(st.lists(st.integers(1, 50) | st.just(5000), max_size=20), min_size=1, max_size=4),
    shares=st.lists(st.integers(1, 9), min_size=1, max_size=20),
)
def test_runs_cover_all_entries_and_have_their_shares(
    volumes: list[list[int]], shares: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("db")
    for number, lengths in enumerate(volumes):
        write(folder / f"db.{number:02}", lengths)
    runs = cut_volumes([read_volume(folder / f"db.{number:02}", "p") for number in range(len(volumes))], shares)
    lengths = [length for volume in volumes for length in volume]
    assert [entry for first, last, _ in runs for entry in range(first, last)] == list(range(len(lengths)))
    assert len(runs) <= len(shares) and all(first < last for first, last, _ in runs)
    part = sum(length + 1 for length in lengths) / sum(shares)
    if len(runs) == len(shares):
        for (first, last, _), share in zip(runs, shares, strict=True):
            # Without its last entry a run is not above its share, but for cuts where a volume ends nearby.
            assert (
                sum(length + 1 for length in lengths[first : last - 1]) <= part * (share + 2 * max(shares) / NEARBY) + 1
            )


def test_a_cut_is_where_a_volume_ends(tmp_path: Path) -> None:
    for number, entries in enumerate((95, 110, 95)):
        write(tmp_path / f"db.{number:02}", [9] * entries)
    volumes = [read_volume(tmp_path / f"db.{number:02}", "p") for number in range(3)]
    assert [run[:2] for run in cut_volumes(volumes, [1] * 3)] == [(0, 95), (95, 205), (205, 300)]
    assert {95, 205} <= {first for first, _, _ in cut_volumes(volumes, [1] * 6)}


def test_lengths_of_a_range_of_entries(tmp_path: Path) -> None:
    write(tmp_path / "db", [5, 7, 1])
    assert lengths_of(read_volume(tmp_path / "db", "p"), 1, 3) == [7, 1]


@pytest.mark.parametrize("length", [0, 3, 11, 40, 60])
def test_truncated_index_is_refused(length: int, tmp_path: Path) -> None:
    write(tmp_path / "db", [5, 7])
    path = tmp_path / "db.pin"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(RefusedError, match="is not the index"):
        read_volume(tmp_path / "db", "p")
