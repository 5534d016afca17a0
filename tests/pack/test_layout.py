"""The file of a pack: what is written is read, and whatever becomes of it on the way is seen."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.errors import CorruptError, MillraceError, RefusedError
from millrace.extensions.pack import difference, hits, layout, pack_unpacker
from millrace.extensions.pack.layout import (
    MAGIC,
    OriginalOutput,
    PackRecipe,
    PackSection,
    PackWriter,
    SectionKind,
    read_sections,
)
from millrace.extensions.pack.result_files import check_pack_contents, compute_sha256

#: A pack of the file ``abc`` as it is, by the first release that packs.
VECTOR = bytes.fromhex(
    "4d525041434b0d0a010000004d52533101000000af00000000000000d90000000000000062e641e228b52ffd20d935050072"
    "4c251960af0e7cb532b3a267badaa12c4110909d4fac2f601204411719a51782efca912dcb374a2f045fdba1fa4e6f0ad4cf"
    "65288622a7525dbdfdf0348aec9b925d32f19c0be62be6746f880bc286f10a44e05708ce452108826649b4746fe09ecb73f3"
    "98b17887c1f1f005117053df04f8dad68a6f87ef87a163097cb557b2377abb031ee00edf0b53943acfdba5add7e19796d172"
    "2c04000d232c803918e4409b05730fcb8461da4d525331050001000c000000000000000300000000000000bee496c40028b5"
    "2ffd200319000061626304d9ea354d525331ff00000029000000000000002000000000000000de993f6928b52ffd20200101"
    "008056a008e9c298a170ba93c09e4e228d8f6b73d40086005e52d114b9a6b7024a936ec2d6"
)


def write(path: Path, parts: list[tuple[SectionKind, bytes, bytes, bytes]]) -> None:
    writer = PackWriter(path)
    for kind, data, reference, note in parts:
        writer.add(kind, data, reference, note)
    writer.finish(lambda _: None)


def plain(folder: Path, data: bytes) -> tuple[Path, tuple[OriginalOutput, ...]]:
    """A pack of a file as it is."""
    (folder / "original").write_bytes(data)
    originals = (OriginalOutput(name="out", bytes=len(data), sha256=compute_sha256(folder / "original")),)
    writer = PackWriter(folder / "pack")
    writer.add(SectionKind.RECIPE, layout.encode_recipe(PackRecipe(codec="zstd", millrace="0", outputs=originals)))
    difference.write_plain_pieces(writer, 0, folder / "original")
    writer.finish(lambda path: check_pack_contents(path, originals, []))
    return folder / "pack", originals


@given(
    st.lists(
        st.tuples(
            st.sampled_from([SectionKind.HITS, SectionKind.PLAIN]), st.binary(), st.binary(), st.binary(max_size=50)
        )
    )
)
def test_sections_round_trip(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[SectionKind, bytes, bytes, bytes]]
) -> None:
    path = tmp_path_factory.mktemp("pack") / "pack"
    write(path, parts)
    found = [*read_sections(path)]
    assert [(each.kind, each.note) for each in found] == [(kind, note) for kind, _, _, note in parts]
    assert [each.unpack_bytes(part[2]) for each, part in zip(found, parts, strict=True)] == [part[1] for part in parts]


def test_corruptions_and_truncations_are_detected(tmp_path: Path) -> None:
    rng = random.Random(17)
    pack, originals = plain(tmp_path, rng.randbytes(3000) + b"a line\n" * 300)
    whole, damaged = pack.read_bytes(), tmp_path / "damaged"
    for number in range(1000):
        text = bytearray(whole)
        if number % 3 == 0:
            del text[rng.randrange(len(text)) :]
        elif number % 3 == 1:
            text[rng.randrange(len(text))] ^= 1 << rng.randrange(8)
        else:
            at, size = rng.randrange(len(text)), rng.randrange(1, 60)
            text[at : at + size] = rng.randbytes(size if number % 2 else rng.randrange(60))
        if text == whole:
            continue
        damaged.write_bytes(text)
        with pytest.raises((CorruptError, RefusedError)):
            pack_unpacker.read_recipe(damaged)
            check_pack_contents(damaged, originals, [])


def test_trailing_bytes_are_detected(tmp_path: Path) -> None:
    pack, _ = plain(tmp_path, b"x")
    pack.write_bytes(pack.read_bytes() + b"\n")
    with pytest.raises(CorruptError, match="something follows"):
        [*read_sections(pack)]


def test_reordered_sections_are_detected(tmp_path: Path) -> None:
    write(tmp_path / "a", [(SectionKind.HITS, b"1", b"", b""), (SectionKind.HITS, b"2", b"", b"")])
    text = (tmp_path / "a").read_bytes()
    start = len(MAGIC) + 4
    size = text.index(b"MRS1", start + 1) - start
    swapped = (
        text[:start] + text[start + size : start + 2 * size] + text[start : start + size] + text[start + 2 * size :]
    )
    assert len(swapped) == len(text) != 0 and swapped != text
    (tmp_path / "a").write_bytes(swapped)
    with pytest.raises(CorruptError):
        [*read_sections(tmp_path / "a")]


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes, begins: bool) -> None:
    path = tmp_path_factory.mktemp("pack") / "pack"
    path.write_bytes((VECTOR[:12] if begins else b"") + data)
    with pytest.raises(MillraceError):
        pack_unpacker.read_recipe(path)


def test_oversized_section_length_allocates_no_memory(tmp_path: Path) -> None:
    with pytest.raises(CorruptError):
        PackSection(SectionKind.PLAIN, b"(\xb5/\xfd\xe0" + b"\xff" * 7 + b"\x00\x01\x00\x00", 10).unpack_bytes()


def test_a_pack_of_another_version_is_refused(tmp_path: Path) -> None:
    pack, _ = plain(tmp_path, b"x")
    pack.write_bytes(MAGIC + b"\x02\0\0\0" + pack.read_bytes()[12:])
    with pytest.raises(RefusedError, match="version 2"):
        pack_unpacker.read_recipe(pack)


def test_the_first_release_s_pack_is_read(tmp_path: Path) -> None:
    (tmp_path / "pack").write_bytes(VECTOR)
    made = pack_unpacker.read_recipe(tmp_path / "pack")
    assert made.codec == "zstd" and made.outputs[0].bytes == 3
    check_pack_contents(tmp_path / "pack", made.outputs, [])


def test_hits_are_laid_out_as_described() -> None:
    batches = [hits.BatchHits(2, [5, 6, 300], b"m"), hits.BatchHits(1, [])]
    text = bytes.fromhex("02 06 0402 03 01 01 00 0005 00 a5 02") + b"m"
    assert hits.encode_hits(batches) == text
    assert listed(hits.decode_hits(text, 301)) == [(2, [5, 6, 300], b"m"), (1, [], b"")]
    with pytest.raises(CorruptError, match="entries that its database does not have"):
        hits.decode_hits(text, 300)


ENTRIES = st.sets(st.integers(0, 1 << 40), max_size=30).map(sorted)


@given(st.lists(st.builds(hits.BatchHits, st.integers(1, 99), ENTRIES, st.binary(max_size=9))))
def test_hits_round_trip(batches: list[hits.BatchHits]) -> None:
    assert listed(hits.decode_hits(hits.encode_hits(batches), 1 << 41)) == listed(batches)


def listed(batches: list[hits.BatchHits]) -> list[tuple[int, list[int], bytes]]:
    return [(each.queries, list(each.entries), each.more) for each in batches]


@given(st.binary(max_size=60))
def test_any_bytes_are_hits_or_refused(data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        found = hits.decode_hits(data, 1 << 62)
        assert hits.decode_hits(hits.encode_hits(found), 1 << 62) == found


@given(st.binary(max_size=300))
def test_any_bytes_are_a_recipe_or_refused(data: bytes) -> None:
    with pytest.raises(CorruptError):
        layout.decode_recipe(data)


WORDS = st.lists(
    st.sampled_from([b"one\n", b"two two\n", b"# Date: now\n", b"x" * 90 + b"\n", b"\n"]), max_size=40
).map(b"".join)


@given(WORDS, WORDS, st.integers(3, 200))
def test_difference_restores_the_original(
    tmp_path_factory: pytest.TempPathFactory, original: bytes, regenerated: bytes, piece: int
) -> None:
    folder = tmp_path_factory.mktemp("difference")
    (folder / "original").write_bytes(original)
    (folder / "regenerated").write_bytes(regenerated)
    difference.strip_file(folder / "regenerated", [r"^# Date: .*$"], folder / "stripped")
    assert (folder / "stripped").read_bytes() == regenerated.replace(b"# Date: now", b"")
    before, difference.PIECE_BYTES = difference.PIECE_BYTES, piece
    try:
        writer = PackWriter(folder / "pack")
        difference.write_differences(writer, 0, folder / "original", folder / "stripped")
        writer.finish(lambda _: None)
    finally:
        difference.PIECE_BYTES = before
    difference.restore_outputs(
        read_sections(folder / "pack"), [folder / "stripped"], [folder / "again"], [len(original)]
    )
    assert (folder / "again").read_bytes() == original
