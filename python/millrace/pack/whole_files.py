"""Packs of files without a command that would regenerate them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from millrace import __version__
from millrace.errors import CorruptError, RefusedError
from millrace.pack import difference, files, recipe
from millrace.pack.codec import NotPackableError
from millrace.pack.layout import PackWriter, SectionKind
from millrace.pack.plain import PackSummary, check_pack_contents, describe_originals, pack_plain
from millrace.pack.recipe import OriginalOutput, PackRecipe


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
    codec, kept = files.find_file_codec("trace"), files.find_file_codec("beside-traces")
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
