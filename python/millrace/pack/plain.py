"""Packs of plain bytes, and the check that the outputs can be restored from a pack."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace import __version__
from millrace.errors import CorruptError
from millrace.pack import difference, recipe
from millrace.pack.files import AS_IT_IS, FileCodec
from millrace.pack.layout import PackWriter, SectionKind, read_sections
from millrace.pack.recipe import OriginalOutput, PackRecipe
from millrace.words import format_size


@dataclass(frozen=True)
class PackSummary:
    """Sizes, times and method of a finished pack."""

    #: Bytes of the outputs, and of the pack.
    original: int
    packed: int
    #: Bytes of the pack that are hits, and that are differences.
    hits: int = 0
    differences: int = 0
    #: Reason why it was packed as plain bytes; empty: it was packed as hits, or as ``how`` says.
    why_plain: str = ""
    #: Another method, in words.
    how: str = ""
    #: Seconds of reading, and of regenerating.
    read_seconds: float = 0.0
    regenerate_seconds: float = 0.0

    def describe_packing(self, dest: Path) -> str:
        """Return a line for the user about the pack ``dest``."""
        ratio = self.original / max(self.packed, 1)
        smaller = f" ({ratio:,.{0 if ratio >= 10 else 1}f} times smaller)" if ratio >= 1.05 else ""
        told = f"{dest}: {format_size(self.original)} in {format_size(self.packed)}{smaller}"
        if self.why_plain:
            return f"{told}, compressed with zstd: {self.why_plain}"
        if self.how:
            return f"{told}, {self.how}"
        again = f"; regenerated in {self.regenerate_seconds:.1f} s" if self.regenerate_seconds else ""
        return f"{told}: hits {format_size(self.hits)}, differences {format_size(self.differences)}{again}"


def pack_files(paths: Sequence[Path], dest: Path, why: str) -> PackSummary:
    """Pack files whose command is unknown as plain bytes, for the reason ``why``."""
    return pack_plain(paths, describe_originals(paths), dest, why)


def describe_originals(paths: Sequence[Path]) -> tuple[OriginalOutput, ...]:
    """Describe files whose command is unknown as outputs: name, bytes and SHA-256."""
    return tuple(
        OriginalOutput(name=path.name, bytes=path.stat().st_size, sha256=compute_sha256(path)) for path in paths
    )


def pack_plain(outputs: Sequence[Path], originals: tuple[OriginalOutput, ...], dest: Path, why: str) -> PackSummary:
    """Pack files as plain bytes, for the reason ``why``."""
    writer = PackWriter(dest)
    try:
        writer.add(
            SectionKind.RECIPE, recipe.encode_recipe(PackRecipe(codec="zstd", millrace=__version__, outputs=originals))
        )
        for index, path in enumerate(outputs):
            difference.write_plain_pieces(writer, index, path)
        writer.finish(lambda path: check_pack_contents(path, originals, []))
    finally:
        writer.discard_unfinished()
    return PackSummary(sum(each.bytes for each in originals), writer.size, why_plain=why)


def check_pack_contents(
    pack: Path, originals: Sequence[OriginalOutput], regenerated: Sequence[Path], codec: FileCodec = AS_IT_IS
) -> None:
    """Check that the outputs are restored from ``pack`` as they were; see ``difference.restore_outputs``.

    Raises:
        CorruptError: They are not, by an error in Millrace or of the disk.
    """
    nowhere = [Path(os.devnull) for _ in originals]
    pieces = (section for section in read_sections(pack) if section.kind in (SectionKind.PLAIN, SectionKind.DIFFERENCE))
    found = difference.restore_outputs(pieces, regenerated, nowhere, [each.bytes for each in originals], codec)
    if found != [(each.bytes, each.sha256) for each in originals]:
        raise CorruptError(f"{pack}: the pack does not hold what was packed", "this must not happen: please report it")


def compute_sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
