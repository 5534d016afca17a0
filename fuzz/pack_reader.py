"""Fuzz target of the reader of packs: a damaged pack gives the same outputs or is refused, a forged one is refused or unpacked.

An input is a byte that chooses what is read, and the bytes from which damage, sections or a piece of a trace are made.
Run by ``make fuzz``, with the arguments of libFuzzer.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["millrace.extensions.pack"]):
    from millrace.extensions.pack import difference, hits, layout, pack_unpacker, trace_codec
    from millrace.extensions.pack.layout import OriginalOutput, PackRecipe, PackSection, PackWriter, SectionKind

from millrace import _core
from millrace.core.errors import CorruptError, RefusedError

FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-pack-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
PACK, DAMAGED, DEST, REGENERATED = (FOLDER / name for name in ("pack", "damaged", "dest", "regenerated"))

ORIGINAL = b"Query= a\n" + bytes(range(256)) * 3 + b"Score 7\n" * 40
SIMILAR = ORIGINAL.replace(b"7", b"8")

#: The most that a forged pack may unpack to: the size that its recipe names.
MAX_OUTPUT_BYTES = 1 << 20


def write_pack() -> list[int]:
    """Write a pack of two outputs; return where its sections begin."""
    digest = hashlib.sha256(ORIGINAL).hexdigest()
    outputs = tuple(OriginalOutput(name, len(ORIGINAL), digest) for name in ("a", "b"))
    REGENERATED.write_bytes(SIMILAR)
    source = FOLDER / "original"
    source.write_bytes(ORIGINAL)
    writer = PackWriter(PACK)
    begins = [writer.size]
    recipe = layout.encode_recipe(PackRecipe("zstd", "0", outputs))
    writer.add(SectionKind.RECIPE, recipe)
    begins.append(writer.size)
    writer.add(SectionKind.HITS, hits.encode_hits([hits.BatchHits(2, [0, 5], b"x"), hits.BatchHits(1, [])]))
    begins.append(writer.size)
    difference.write_differences(writer, 0, source, REGENERATED)
    begins.append(writer.size)
    difference.write_plain_pieces(writer, 1, source)
    begins.append(writer.size)
    writer.add(SectionKind.OUTPUTS, layout.encode_outputs(outputs))
    begins.append(writer.size)
    writer.finish(lambda _: None)
    return begins


BEGINS = write_pack()
WHOLE = PACK.read_bytes()


def restore_pack(path: Path) -> list[tuple[bytes, str, str]]:
    """Read the whole pack as the unpacker does; return each output, its digest, and the digest that the pack names."""
    recipe = pack_unpacker.read_recipe(path)
    dests = [DEST.with_suffix(f".{n}") for n in range(len(recipe.outputs))]
    found: list[PackSection] = list(layout.read_sections(path))
    for section in found:
        if section.kind is SectionKind.HITS:
            hits.decode_hits(section.unpack_bytes(), 9)
    pieces = [each for each in found if each.kind in (SectionKind.DIFFERENCE, SectionKind.PLAIN)]
    most = [min(each.bytes, MAX_OUTPUT_BYTES) for each in recipe.outputs]
    try:
        made = difference.restore_outputs(pieces, [REGENERATED] * len(dests), dests, most)
        return [
            (dest.read_bytes(), digest, output.sha256)
            for dest, (_, digest), output in zip(dests, made, recipe.outputs, strict=True)
        ]
    finally:
        for dest in dests:
            dest.unlink(missing_ok=True)


def damage_pack(data: atheris.FuzzedDataProvider) -> bytes:
    """Return the pack with changed, moved and missing bytes."""
    text = bytearray(WHOLE)
    for _ in range(data.ConsumeIntInRange(1, 4)):
        at = min(data.PickValueInList(BEGINS) + data.ConsumeIntInRange(0, 400), len(text))
        match data.ConsumeIntInRange(0, 5):
            case 0 if at < len(text):
                text[at] ^= 1 << data.ConsumeIntInRange(0, 7)
            case 1:
                del text[at:]
            case 2:
                text[at : at + data.ConsumeIntInRange(0, 50)] = data.ConsumeBytes(data.ConsumeIntInRange(0, 50))
            case 3:  # a section in the place of another one, or beside it
                begin, end = sorted((data.PickValueInList(BEGINS), data.PickValueInList(BEGINS)))
                text[data.PickValueInList(BEGINS) : data.PickValueInList(BEGINS)] = WHOLE[begin:end]
            case 4:
                begin, end = sorted((data.PickValueInList(BEGINS), data.PickValueInList(BEGINS)))
                del text[begin:end]
            case _:
                text += data.ConsumeBytes(data.ConsumeIntInRange(0, 50))
    return bytes(text)


def forge_sections(data: atheris.FuzzedDataProvider) -> Iterator[bytes]:
    """Yield sections with right checksums, that no writer has written."""
    kinds = [*SectionKind, 0, 99]
    while data.remaining_bytes() > 4:
        content = data.ConsumeBytes(data.ConsumeIntInRange(0, 300))
        if data.ConsumeBool():
            content = layout.encode_recipe(
                PackRecipe("zstd", "0", (OriginalOutput("a", len(ORIGINAL), layout.UNKNOWN),))
            )
        packed = _core.squeeze(content, 1) if data.ConsumeBool() else content
        length = data.ConsumeIntInRange(0, 1 << 36) if data.ConsumeBool() else len(content)
        note = (
            difference.encode_note(*(data.ConsumeIntInRange(0, most) for most in (3, 2000, 2000, 2000, 1 << 22)))
            if data.ConsumeBool()
            else data.ConsumeBytes(data.ConsumeIntInRange(0, 3))
        )
        head = layout._HEAD.pack(layout._MARK, data.PickValueInList(kinds), len(note), len(packed), length)
        yield (
            head + layout._CRC.pack(_core.crc32c(head)) + note + packed + layout._CRC.pack(_core.crc32c(note + packed))
        )


def seal_pack(sections: bytes) -> bytes:
    """Return a pack of these sections, with a right end."""
    text = layout._FILE.pack(layout.MAGIC, layout.VERSION) + sections
    digest = hashlib.sha256(text).digest()
    packed = _core.squeeze(digest, 1)
    head = layout._HEAD.pack(layout._MARK, SectionKind.END, 0, len(packed), len(digest))
    return text + head + layout._CRC.pack(_core.crc32c(head)) + packed + layout._CRC.pack(_core.crc32c(packed))


def check_damaged(data: atheris.FuzzedDataProvider) -> None:
    """Check that damage is refused."""
    DAMAGED.write_bytes(damage_pack(data))
    for content, digest, named in restore_pack(DAMAGED):
        if content != ORIGINAL and digest == named:
            raise AssertionError("other bytes with the right digest")
    if DAMAGED.read_bytes() != WHOLE:
        raise AssertionError("damage is not noticed")


def check_forged(data: atheris.FuzzedDataProvider) -> None:
    """Check that a forged pack takes no more memory and disk than it names."""
    DAMAGED.write_bytes(seal_pack(b"".join(forge_sections(data))))
    for content, _, _ in restore_pack(DAMAGED):
        if len(content) > MAX_OUTPUT_BYTES:
            raise AssertionError("more bytes than the recipe names")


def check_trace_piece(data: atheris.FuzzedDataProvider) -> None:
    """Check that a piece of a trace is decoded or refused."""
    column = trace_codec.ColumnHeader
    rows, n_columns = data.ConsumeIntInRange(0, 12), data.ConsumeIntInRange(1, 3)
    columns = tuple(
        column(
            width=data.ConsumeIntInRange(0, 8), by_steps=data.ConsumeBool(), by_period=data.ConsumeBool(),
            decimals=data.ConsumeIntInRange(-1, 9),
            words=tuple(data.ConsumeIntInRange(0, 3) for _ in range(data.ConsumeIntInRange(0, 5))) if data.ConsumeBool() else None,
        )
        for _ in range(n_columns)
    )  # fmt: skip
    dtype = data.PickValueInList(["", "otf2", "[('a', '<f8')]", "[('a', '<i2'), ('b', '>f4')]", "'<f8'", "[]"])
    if data.ConsumeBool():
        dtype = data.ConsumeUnicodeNoSurrogates(data.ConsumeIntInRange(0, 40))
    head = trace_codec.PieceHeader(
        rows=rows, period=data.ConsumeIntInRange(0, 13), group=data.ConsumeIntInRange(-1, 3), columns=columns,
        head=data.ConsumeIntInRange(0, 3), separator=data.PickValueInList(["", ",", "\t", "\u20ac"]),
        ended=data.ConsumeBool(), dtype=dtype,
    )  # fmt: skip
    told = layout.msgspec.json.encode(head) if data.ConsumeBool() else data.ConsumeBytes(data.ConsumeIntInRange(0, 100))
    n_bytes = head.head + sum(sum(each.words or ()) + each.width * rows for each in columns)
    body = data.ConsumeBytes(n_bytes)
    piece = trace_codec._LENGTH.pack(len(told)) + told + body.ljust(n_bytes, b"\0")
    if len(trace_codec.CODEC.decode(piece)) > layout.MAX_SECTION_BYTES:
        raise AssertionError("more bytes than a piece may have")


def check_hits(data: atheris.FuzzedDataProvider) -> None:
    """Check that any bytes are hits, which are encoded to the same again, or are refused."""
    text = data.ConsumeBytes(data.remaining_bytes())
    found = hits.decode_hits(text, 300)
    if hits.decode_hits(hits.encode_hits(found), 300) != found:
        raise AssertionError("hits are not what was decoded")


CHECKS = [check_damaged, check_forged, check_trace_piece, check_hits]


def test_one_input(text: bytes) -> None:
    """Check one input."""
    data = atheris.FuzzedDataProvider(text)
    try:
        data.PickValueInList(CHECKS)(data)
    except (CorruptError, RefusedError):
        return


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
