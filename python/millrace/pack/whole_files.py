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
from millrace.pack.codec import NotPackable
from millrace.pack.layout import Kind, Writer
from millrace.pack.plain import Packed, check, originals_of, pack_plain
from millrace.pack.recipe import Original, Recipe


def pack(paths: Sequence[Path], dest: Path) -> Packed:
    """Pack files as periodic traces if that is possible and smaller, else as plain bytes; replace ``dest`` at the end.

    Raises:
        MillraceError: A file cannot be read or written.
    """
    originals = originals_of(paths)
    with tempfile.TemporaryDirectory(prefix=f".{dest.name}.", dir=dest.parent) as name:
        plain, trace = Path(name) / "plain", Path(name) / "trace"
        best, packed = plain, pack_plain(paths, originals, plain, "")
        try:
            size = _pack_traces(paths, originals, trace)
            if size >= packed.packed:
                raise NotPackable("as a periodic trace it takes more bytes than by zstd")
            best, packed = trace, Packed(packed.original, size, how="as a periodic trace")
        except (NotPackable, RefusedError) as error:
            packed = replace(packed, why_plain=error.message)
        except CorruptError:
            packed = replace(packed, why_plain="what is read of its columns is not all that it says")
        os.replace(best, dest)
    return packed


def _pack_traces(paths: Sequence[Path], originals: tuple[Original, ...], dest: Path) -> int:
    """Pack files, those that are traces as such; return the bytes of the pack."""
    codec, kept = files.find("trace"), files.find("beside-traces")
    assert codec and kept  # they are built in
    writer, why_not = Writer(dest), list[NotPackable]()
    try:
        writer.add(Kind.RECIPE, recipe.encode(Recipe(codec="trace", millrace=__version__, outputs=originals)))
        for index, path in enumerate(paths):
            before = writer.size
            try:
                difference.write_plain(writer, index, path, codec)
            except NotPackable as error:
                why_not.append(error)
                if writer.size != before or len(why_not) == len(paths):
                    raise why_not[0] from None
                difference.write_plain(writer, index, path, kept)
        writer.finish(lambda path: check(path, originals, [], codec))
    finally:
        writer.give_up()
    return writer.size
