"""Packs of plain bytes, as of files without a command, and the check that a pack restores its outputs."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from millrace import __version__
from millrace.core.errors import CorruptError, RefusedError
from millrace.core.number_format import format_size
from millrace.extensions.pack import difference, recipe
from millrace.extensions.pack.difference import AS_IT_IS, FileCodec
from millrace.extensions.pack.layout import PackWriter, SectionKind, read_sections
from millrace.extensions.pack.recipe import OriginalOutput, PackRecipe
from millrace.extensions.pack.result_codec import NotPackableError


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


def pack_traces_or_plain(paths: Sequence[Path], dest: Path) -> PackSummary:
    """Pack files as periodic traces if that is possible and smaller, else as plain bytes; replace ``dest`` at the end.

    Raises:
        MillraceError: A file cannot be read or written.
    """
    originals = describe_originals(paths)
    with tempfile.TemporaryDirectory(prefix=f".{dest.name}.", dir=dest.parent) as name:
        plain, trace = Path(name) / "plain", Path(name) / "trace"
        best, packed = plain, pack_plain(paths, originals, plain, "")
        try:
            size = _pack_traces(paths, originals, trace)
            if size >= packed.packed:
                raise NotPackableError("as a periodic trace it takes more bytes than by zstd")
            best, packed = trace, PackSummary(packed.original, size, how="as a periodic trace")
        except (NotPackableError, RefusedError) as error:
            packed = replace(packed, why_plain=error.message)
        except CorruptError:
            packed = replace(packed, why_plain="what is read of its columns is not all that it says")
        os.replace(best, dest)
    return packed


def _pack_traces(paths: Sequence[Path], originals: tuple[OriginalOutput, ...], dest: Path) -> int:
    """Pack files, those that are traces as such; return the bytes of the pack."""
    codec, kept = difference.find_file_codec("trace"), difference.find_file_codec("beside-traces")
    assert codec and kept  # they are built in
    writer, why_not = PackWriter(dest), list[NotPackableError]()
    try:
        writer.add(
            SectionKind.RECIPE, recipe.encode_recipe(PackRecipe(codec="trace", millrace=__version__, outputs=originals))
        )
        for index, path in enumerate(paths):
            before = writer.size
            try:
                difference.write_plain_pieces(writer, index, path, codec)
            except NotPackableError as error:
                why_not.append(error)
                if writer.size != before or len(why_not) == len(paths):
                    raise why_not[0] from None
                difference.write_plain_pieces(writer, index, path, kept)
        writer.finish(lambda path: check_pack_contents(path, originals, [], codec))
    finally:
        writer.discard_unfinished()
    return writer.size
