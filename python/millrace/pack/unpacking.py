"""Unpacker: writes the outputs of a pack exactly as they were, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import CorruptError, RefusedError
from millrace.pack import codec as codecs
from millrace.pack import difference, files, hits, places, queries, recipe, regenerate
from millrace.pack.codec import Codec, NotPackable
from millrace.pack.hits import Hits
from millrace.pack.layout import Kind, Section, sections, unfinished
from millrace.pack.plain import digest_of
from millrace.pack.recipe import Database, Original, Recipe
from millrace.pack.regenerate import Settings
from millrace.pack.stripping import stripped
from millrace.plan.plan import Plan
from millrace.tools import registry
from millrace.words import shown

#: Bytes of hits at most: it bounds the memory that a pack can demand.
MOST_HITS = 512 << 20

#: Called before the command of a pack is run: shows it to the user, and returns the answer.
Confirm = Callable[[Recipe, Sequence[str]], bool]


@dataclass(frozen=True)
class Here:
    """The user's options for unpacking."""

    settings: Settings
    cwd: Path
    #: Argument of the tool; empty: the name in the packed result.
    database: str = ""
    queries: Path | None = None
    #: Whether another version of the tool may be tried.
    any_version: bool = False


def look(pack: Path) -> Recipe:
    """Read the recipe of a pack, after all its checksums are verified.

    Raises:
        CorruptError: The pack is damaged.
    """
    found: Recipe | None = None
    for number, section in enumerate(sections(pack)):
        if (section.kind is Kind.RECIPE) != (number == 0):
            raise CorruptError(f"{pack}: a pack says once, and first, what it is")
        if section.kind is Kind.RECIPE:
            found = recipe.decode(section.data())
        elif section.kind is Kind.OUTPUTS and found:
            found = recipe.with_outputs(found, section.data())
    if found is None:
        raise CorruptError(f"{pack}: the pack says nothing of what it is")
    return found


def unpack(
    pack: Path, made: Recipe, dests: Sequence[Path], here: Here, confirm: Confirm, begun: Path | None = None
) -> None:
    """Write the outputs of ``pack`` to ``dests``.

    Args:
        made: The recipe that ``look`` has read.
        begun: Folder in which a part is regenerated already; see ``millrace.pack.receiving``.

    Raises:
        MillraceError: They cannot be written exactly; then none is.
    """
    most = [each.bytes for each in made.outputs]
    places.check_room(dests, most)
    fresh = [unfinished(dest) for dest in dests]
    # Another pack is another regeneration; the same one is resumed.
    folder = begun or dests[0].with_name(f"{dests[0].name}.{digest_of(pack)[:12]}.unpack")
    regenerated, codec = [], files.find(made.codec)
    if codec is None:
        places.take_folder(folder)
    done = False
    try:
        if codec is None:
            begin = begin_here(sections(pack), made, folder, dests, here, confirm)
            regenerated = _regenerated(begin, read_hits(sections(pack), made), put_all=not begun)
        pieces = (section for section in sections(pack) if section.kind in (Kind.DIFFERENCE, Kind.PLAIN))
        _compare(made, difference.apply(pieces, regenerated, fresh, most, codec or files.AS_IT_IS))
        for path, dest in zip(fresh, dests, strict=True):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.replace(dest)
        done = True
    except CorruptError:
        done = True
        raise
    finally:
        for path in fresh:
            path.unlink(missing_ok=True)
        if codec is None and (done or not (folder / regenerate.RUN).exists()):
            shutil.rmtree(folder, ignore_errors=True)


def _compare(made: Recipe, found: Sequence[tuple[int, str]]) -> None:
    for original, (size, digest) in zip(made.outputs, found, strict=True):
        if (size, digest) != (original.bytes, original.sha256):
            raise CorruptError(
                f"{shown(original.name)}: what was regenerated is not what was packed; nothing is written",
                "the tool or the database here may differ from those of the packed result",
            )


@dataclass(frozen=True)
class Begin:
    """A regeneration whose queries and database are here, and match those of the pack."""

    made: Recipe
    folder: Path
    codec: Codec
    #: The file of queries.
    queries: Path
    argv: tuple[str, ...]
    here: Here

    def plan(self, source: Path) -> Plan:
        """Plan the run for the queries in ``source``.

        Raises:
            RefusedError: It is impossible here.
        """
        return _plan(self.made, self.folder, source, self.argv, self.codec, self.here)


def begin_here(
    found: Iterator[Section], made: Recipe, folder: Path, dests: Sequence[Path], here: Here, confirm: Confirm
) -> Begin:
    """Check that a result can be regenerated here, with the user's consent.

    Args:
        found: Sections of the pack, including all of the queries if it has them.
        folder: A private folder.

    Raises:
        MillraceError: It cannot be regenerated.
    """
    codec = _codec(made)
    source = _queries(found, made, folder, here)
    assert made.database  # see ``_codec``
    if not here.database and shown(made.database.name) != made.database.name:
        raise RefusedError(f"the pack names the database {shown(made.database.name)}", "name the one here with --db")
    database = codec.database_name(here.database or made.database.name, here.cwd, here.settings.environ)
    argv = regenerate.command_line(made.tool, made.arguments, database)
    if not confirm(made, argv):
        raise RefusedError("nothing was run", "run it with --yes")
    begin = Begin(made, folder, codec, source, argv, here)
    plan = begin.plan(source)
    places.refuse_read(dests, plan.use.databases)
    check_database(made.database, codec.database(plan.use, plan.command, like=made.database))
    return begin


def _regenerated(begin: Begin, found: Sequence[Hits], *, put_all: bool) -> list[Path]:
    """Regenerate all outputs and strip them.

    Args:
        put_all: Whether an earlier start can have written only all hits or none, not a part of them.
    """
    plan = begin.plan(begin.queries)
    if not put_all or not regenerate.is_begun(plan):
        batches = cut(begin.queries, plan, found, begin.folder / "batch")
        blocks = begin.codec.found(plan.use, plan.command, found)
        (regenerate.put if put_all else regenerate.put_more)(plan, zip(batches, blocks, strict=True))
    return stripped(begin.codec, plan, regenerate.run(plan))


def cut(source: Path, plan: Plan, found: Sequence[Hits], scratch: Path) -> list[queries.QueryBatch]:
    """Cut the queries into the batches of the hits.

    Raises:
        CorruptError: The number of queries differs.
    """
    batches = list(queries.batches(source, plan.use.inputs[0], (each.queries for each in found), scratch))
    if [batch.last - batch.first for batch in batches] != [each.queries for each in found]:
        raise CorruptError("the pack is of other batches of queries")
    return batches


def _codec(made: Recipe) -> Codec:
    codec = codecs.find(made.codec)
    if codec is None or made.queries is None or made.database is None:
        raise RefusedError(f"this pack needs the codec {shown(repr(made.codec))}, which is not here", "install it")
    if registry.MODULES.get(made.tool) != made.codec:
        raise RefusedError(
            f"the pack names the program {shown(repr(made.tool))}, which is not of {made.codec}", "do not unpack it"
        )
    return codec


def _queries(found: Iterator[Section], made: Recipe, folder: Path, here: Here) -> Path:
    """Return the file of queries: the user's, or that of the pack."""
    assert made.queries  # see ``_codec``
    path = here.queries
    if path is None:
        path = folder / "queries.packed"
        places.check_room([path], [made.queries.bytes])
        if not write_queries(found, path, made.queries.bytes):
            raise RefusedError(
                f"the queries do not travel in this pack: {shown(made.queries.name)}, {made.queries.bytes} bytes",
                "name the file with --queries",
            )
    if not path.is_file():
        raise RefusedError(f"{path}: no such file", "check the path of the queries")
    if digest_of(path) != made.queries.sha256:
        raise RefusedError(f"{path}: these are other queries than those of the packed result", "name the right file")
    return path


def write_queries(found: Iterator[Section], path: Path, most: int) -> bool:
    """Write the queries of a pack to ``path``; return whether the pack has any.

    Raises:
        CorruptError: They are more than ``most`` bytes.
    """
    has = False
    with path.open("wb") as file:
        for section in found:
            if section.kind is Kind.QUERIES:
                has = True
                if file.tell() + section.length > most:
                    raise CorruptError("the pack holds more queries than it says")
                file.write(section.data())
    return has


def _plan(made: Recipe, folder: Path, source: Path, argv: Sequence[str], codec: Codec, here: Here) -> Plan:
    try:
        plan = regenerate.plan(folder, source, argv, codec, here.settings, made.database)
    except NotPackable as error:
        raise RefusedError(f"the result cannot be regenerated here: {error}") from error
    if plan.use.version != made.version and not here.any_version:
        raise RefusedError(
            f"the result is of {shown(made.version) or 'an unknown version'}, here is {plan.use.version or 'an unknown version'}",
            "install that version, or try --any-version: only the exact result is ever written",
        )
    check_outputs(made.outputs, [each.name for each in plan.use.outputs])
    return plan


def check_outputs(originals: Sequence[Original], names: Sequence[str]) -> None:
    """Check that the command writes the outputs that the pack has.

    Raises:
        RefusedError: It does not.
    """
    if [each.name for each in originals] != list(names):
        raise RefusedError("the command of the pack writes other outputs than the pack has", "do not unpack it")


def check_database(packed: Database, here: Database) -> None:
    """Check that a database has the same entries in the same order as that of the packed result.

    Raises:
        RefusedError: It does not; the message names the difference.
    """
    if here.ordered == packed.ordered:
        return
    if here.entries != packed.entries:
        what = f"it has {here.entries} entries, that one had {packed.entries}"
    elif here.unordered == packed.unordered:
        what = "its entries are the same, in another order, by which tools order what scores the same"
    else:
        what = f"of its {packed.entries} entries, some are others"
    raise RefusedError(
        f"the database here is not that of the packed result ({shown(packed.name)}): {what}",
        "name the right one with --db",
    )


def read_hits(pieces: Iterator[Section], made: Recipe) -> list[Hits]:
    """Read the hits of a pack.

    Raises:
        CorruptError: They are malformed, too many, or not of its database.
    """
    found: list[Hits] = []
    size = 0
    for section in pieces:
        if section.kind is Kind.HITS:
            size += section.length
            if size > MOST_HITS:
                raise CorruptError("the pack has more hits than any result")
            room = hits.MAX_BATCHES - len(found)
            found += hits.decode(section.data(), made.database.entries if made.database else 0, room)
    return found
