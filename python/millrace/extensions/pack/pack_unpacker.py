"""Unpacker: writes the outputs of a pack exactly as they were, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace.adapters import registry
from millrace.core.errors import CorruptError, RefusedError
from millrace.core.text_format import escape_unprintable
from millrace.extensions.pack import (
    difference,
    hits,
    layout,
    output_texts,
    pack_destinations,
    regeneration_run,
    result_codec,
)
from millrace.extensions.pack import result_codec as codecs
from millrace.extensions.pack.difference import FileCodec, strip_outputs
from millrace.extensions.pack.hits import BatchHits
from millrace.extensions.pack.layout import (
    OriginalOutput,
    PackedDatabase,
    PackedTexts,
    PackRecipe,
    PackSection,
    SectionKind,
    make_temporary_path,
    read_sections,
)
from millrace.extensions.pack.regeneration_run import RegenerationSettings
from millrace.extensions.pack.result_codec import NotPackableError, ResultCodec
from millrace.extensions.pack.result_files import compute_sha256
from millrace.launch.node_allocation import NodeAllocation
from millrace.planning.run_plan import RunPlan

#: Bytes of hits at most: it bounds the memory that a pack can demand.
MAX_HITS_BYTES = 512 << 20

#: Called before the command of a pack is run: shows it to the user, and returns the answer.
Confirm = Callable[[PackRecipe, Sequence[str]], bool]


@dataclass(frozen=True)
class UnpackOptions:
    """The user's options for unpacking."""

    settings: RegenerationSettings
    cwd: Path
    #: Argument of the tool; empty: the name in the packed result.
    database: str = ""
    queries: Path | None = None
    #: Whether another version of the tool may be tried.
    any_version: bool = False
    #: The nodes that regenerate; None: this machine alone.
    nodes: NodeAllocation | None = None


def read_recipe(pack: Path) -> PackRecipe:
    """Read the recipe of a pack, after all its checksums are verified.

    Raises:
        CorruptError: The pack is damaged.
    """
    found: PackRecipe | None = None
    for number, section in enumerate(read_sections(pack)):
        if (section.kind is SectionKind.RECIPE) != (number == 0):
            raise CorruptError(f"{pack}: a pack says once, and first, what it is")
        if section.kind is SectionKind.RECIPE:
            found = layout.decode_recipe(section.unpack_bytes())
        elif section.kind is SectionKind.OUTPUTS and found:
            found = layout.add_final_outputs(found, section.unpack_bytes())
    if found is None:
        raise CorruptError(f"{pack}: the pack says nothing of what it is")
    return found


def read_texts(found: Iterator[PackSection], made: PackRecipe) -> PackedTexts | None:
    """Read the texts of a pack from its sections; None: it has none, and its outputs have digests.

    Raises:
        CorruptError: They are malformed.
    """
    if difference.find_file_codec(made.codec):
        return None
    for section in found:
        if section.kind is SectionKind.TEXTS:
            return layout.decode_texts(made, section.unpack_bytes())
        if section.kind is SectionKind.HITS:
            break
    return None


def unpack_outputs(
    pack: Path,
    made: PackRecipe,
    dests: Sequence[Path],
    here: UnpackOptions,
    confirm: Confirm,
    begun: Path | None = None,
) -> str:
    """Write the outputs of ``pack`` to ``dests``; return in words why they are right.

    Args:
        made: The recipe that ``read_recipe`` has read.
        begun: Folder in which a part is regenerated already; see ``millrace.extensions.pack.pack_receiver``.

    Raises:
        MillraceError: They cannot be written exactly; then none is.
    """
    pack_destinations.check_room(dests, [each.bytes for each in made.outputs])
    fresh = [make_temporary_path(dest) for dest in dests]
    # Another pack is another regeneration; the same one is resumed.
    folder = begun or dests[0].with_name(f"{dests[0].name}.{compute_sha256(pack)[:12]}.unpack")
    codec, texts = difference.find_file_codec(made.codec), read_texts(read_sections(pack), made)
    if codec is None:
        pack_destinations.claim_folder(folder)
    done = False
    try:
        if codec is None:
            begin = prepare_regeneration(read_sections(pack), made, texts, folder, dests, here, confirm)
            found = read_hits(read_sections(pack), made)
            _write_regenerated(begin, found, pack, fresh, texts, put_all=not begun)
        else:
            _restore_outputs(pack, made, [], fresh, codec)
        for path, dest in zip(fresh, dests, strict=True):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.replace(dest)
        done = True
        return "by the same version, queries and database" if texts else "as packed, SHA-256 compared"
    except CorruptError:
        done = True
        raise
    finally:
        for path in fresh:
            path.unlink(missing_ok=True)
        if codec is None and (done or not (folder / regeneration_run.RUN).exists()):
            shutil.rmtree(folder, ignore_errors=True)


def _write_regenerated(
    begin: PreparedRegeneration, found: Sequence[BatchHits], pack: Path, fresh: Sequence[Path], texts: PackedTexts | None, *, put_all: bool,
) -> None:  # fmt: skip
    """Regenerate the outputs, and write them to ``fresh`` as they were, or as the command would write them."""
    plan = _regenerate_outputs(begin, found, put_all=put_all)
    outputs = regeneration_run.list_written_outputs(plan)
    if texts:
        output_texts.write_outputs(texts, begin.codec, plan.use, begin.key, outputs, fresh)
    else:
        _restore_outputs(pack, begin.made, strip_outputs(begin.codec, plan, outputs), fresh)


def _restore_outputs(
    pack: Path, made: PackRecipe, regenerated: Sequence[Path], fresh: Sequence[Path], codec: FileCodec = difference.AS_IT_IS,
) -> None:  # fmt: skip
    pieces = (each for each in read_sections(pack) if each.kind in (SectionKind.DIFFERENCE, SectionKind.PLAIN))
    most = [each.bytes for each in made.outputs]
    _check_digests(made, difference.restore_outputs(pieces, regenerated, fresh, most, codec))


def _check_digests(made: PackRecipe, found: Sequence[tuple[int, str]]) -> None:
    for original, (size, digest) in zip(made.outputs, found, strict=True):
        if (size, digest) != (original.bytes, original.sha256):
            raise CorruptError(
                f"{escape_unprintable(original.name)}: what was regenerated is not what was packed; nothing is written",
                "the tool or the database here may differ from those of the packed result",
            )


@dataclass(frozen=True)
class PreparedRegeneration:
    """A regeneration whose queries and database are here, and match those of the pack."""

    made: PackRecipe
    folder: Path
    codec: ResultCodec
    #: The file of queries.
    queries: Path
    argv: tuple[str, ...]
    here: UnpackOptions
    #: See ``millrace.extensions.pack.regeneration_run.get_output_name``; empty: the pack has no texts.
    key: str = ""

    def plan_for_queries(self, source: Path) -> RunPlan:
        """Plan the run for the queries in ``source``.

        Raises:
            RefusedError: It is impossible here.
        """
        made, here = self.made, self.here
        try:
            plan = regeneration_run.plan_regeneration_run(
                self.folder, source, self.argv, self.codec, here.settings, made.database, self.key
            )
        except NotPackableError as error:
            raise RefusedError(f"the result cannot be regenerated here: {error}") from error
        if plan.use.version != made.version and (self.key or not here.any_version):
            raise RefusedError(
                f"the result is of {escape_unprintable(made.version) or 'an unknown version'}, here is {plan.use.version or 'an unknown version'}",
                "install that version"
                if self.key
                else "install that version, or try --any-version: only the exact result is ever written",
            )
        check_output_names(made.outputs, [each.name for each in plan.use.outputs])
        return plan

    def run_regeneration(self, plan: RunPlan, source: Path) -> None:
        """Complete ``plan``, the run for the queries in ``source``, on all nodes.

        Raises:
            MillraceError: The run was not completed.
        """
        made, settings = self.made, self.here.settings
        if self.here.nodes is None:
            regeneration_run.run_regeneration(plan)
            return
        from millrace.extensions.pack import node_regeneration  # few use several nodes, and it imports much

        order = node_regeneration.RegenerationOrder(
            queries=str(source), argv=self.argv, codec=made.codec, database=made.database, key=self.key, slots=settings.slots,
            work_dir=settings.work_dir, in_journal=all(each.to == os.devnull for each in plan.use.outputs),
        )  # fmt: skip
        node_regeneration.run_on_nodes(self.folder, order, plan, self.here.nodes)


def prepare_regeneration(
    found: Iterator[PackSection],
    made: PackRecipe,
    texts: PackedTexts | None,
    folder: Path,
    dests: Sequence[Path],
    here: UnpackOptions,
    confirm: Confirm,
) -> PreparedRegeneration:
    """Check that a result can be regenerated here, with the user's consent.

    Args:
        found: Sections of the pack, including all of the queries if it has them.
        folder: A private folder.

    Raises:
        MillraceError: It cannot be regenerated.
    """
    codec = _require_codec(made)
    source = _locate_queries(found, made, folder, here)
    assert made.database  # see ``_require_codec``
    if not here.database and escape_unprintable(made.database.name) != made.database.name:
        raise RefusedError(
            f"the pack names the database {escape_unprintable(made.database.name)}", "name the one here with --db"
        )
    database = codec.resolve_database_name(here.database or made.database.name, here.cwd, here.settings.environ)
    key = output_texts.make_name_key(made) if texts else ""
    argv = regeneration_run.build_command_line(made.tool, made.arguments, database, key)
    if not confirm(made, argv):
        raise RefusedError("nothing was run", "run it with --yes")
    begin = PreparedRegeneration(made, folder, codec, source, argv, here, key)
    plan = begin.plan_for_queries(source)
    pack_destinations.refuse_overwritten_inputs(dests, plan.use.databases)
    check_database(made.database, codec.describe_database(plan.use, plan.command, like=made.database))
    return begin


def _regenerate_outputs(begin: PreparedRegeneration, found: Sequence[BatchHits], *, put_all: bool) -> RunPlan:
    """Regenerate all outputs; return the plan of the run.

    Args:
        put_all: Whether an earlier start can have written only all hits or none, not a part of them.
    """
    plan = begin.plan_for_queries(begin.queries)
    if not put_all or not regeneration_run.has_current_hits(plan):
        batches = cut_matching_batches(begin.queries, plan, found, begin.folder / "batch")
        blocks = begin.codec.format_search_blocks(plan.use, plan.command, found)
        (regeneration_run.write_search_journal if put_all else regeneration_run.extend_search_journal)(
            plan, zip(batches, blocks, strict=True)
        )
    begin.run_regeneration(plan, begin.queries)
    return plan


def cut_matching_batches(
    source: Path, plan: RunPlan, found: Sequence[BatchHits], scratch: Path
) -> list[result_codec.QueryBatch]:
    """Cut the queries into the batches of the hits.

    Raises:
        CorruptError: The number of queries differs.
    """
    batches = list(
        result_codec.cut_query_batches(source, plan.use.inputs[0], (each.queries for each in found), scratch)
    )
    if [batch.last - batch.first for batch in batches] != [each.queries for each in found]:
        raise CorruptError("the pack is of other batches of queries")
    return batches


def _require_codec(made: PackRecipe) -> ResultCodec:
    codec = codecs.find_result_codec(made.codec)
    if codec is None or made.queries is None or made.database is None:
        raise RefusedError(
            f"this pack needs the codec {escape_unprintable(repr(made.codec))}, which is not here", "install it"
        )
    if registry.MODULES.get(made.tool) != made.codec:
        raise RefusedError(
            f"the pack names the program {escape_unprintable(repr(made.tool))}, which is not of {made.codec}",
            "do not unpack it",
        )
    return codec


def _locate_queries(found: Iterator[PackSection], made: PackRecipe, folder: Path, here: UnpackOptions) -> Path:
    """Return the file of queries: the user's, or that of the pack."""
    assert made.queries  # see ``_require_codec``
    path = here.queries
    if path is None:
        path = folder / "queries.packed"
        pack_destinations.check_room([path], [made.queries.bytes])
        if not extract_queries(found, path, made.queries.bytes):
            raise RefusedError(
                f"the queries do not travel in this pack: {escape_unprintable(made.queries.name)}, {made.queries.bytes} bytes",
                "name the file with --queries",
            )
    if not path.is_file():
        raise RefusedError(f"{path}: no such file", "check the path of the queries")
    if compute_sha256(path) != made.queries.sha256:
        raise RefusedError(f"{path}: these are other queries than those of the packed result", "name the right file")
    return path


def extract_queries(found: Iterator[PackSection], path: Path, most: int) -> bool:
    """Write the queries of a pack to ``path``; return whether the pack has any.

    Raises:
        CorruptError: They are more than ``most`` bytes.
    """
    has = False
    with path.open("wb") as file:
        for section in found:
            if section.kind is SectionKind.QUERIES:
                has = True
                if file.tell() + section.length > most:
                    raise CorruptError("the pack holds more queries than it says")
                file.write(section.unpack_bytes())
    return has


def check_output_names(originals: Sequence[OriginalOutput], names: Sequence[str]) -> None:
    """Check that the command writes the outputs that the pack has.

    Raises:
        RefusedError: It does not.
    """
    if [each.name for each in originals] != list(names):
        raise RefusedError("the command of the pack writes other outputs than the pack has", "do not unpack it")


def check_database(packed: PackedDatabase, here: PackedDatabase) -> None:
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
        f"the database here is not that of the packed result ({escape_unprintable(packed.name)}): {what}",
        "name the right one with --db",
    )


def read_hits(pieces: Iterator[PackSection], made: PackRecipe) -> list[BatchHits]:
    """Read the hits of a pack.

    Raises:
        CorruptError: They are malformed, too many, or not of its database.
    """
    found: list[BatchHits] = []
    size = 0
    for section in pieces:
        if section.kind is SectionKind.HITS:
            size += section.length
            if size > MAX_HITS_BYTES:
                raise CorruptError("the pack has more hits than any result")
            room = hits.MAX_BATCHES - len(found)
            found += hits.decode_hits(section.unpack_bytes(), made.database.entries if made.database else 0, room)
    return found
