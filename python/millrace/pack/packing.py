"""Packer of results: as hits if that is smaller, else as plain bytes. Each pack is checked to restore the result."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from millrace import __version__
from millrace.errors import RefusedError, ToolError
from millrace.model import Token
from millrace.pack import codec as codecs
from millrace.pack import difference, hits, queries, recipe, regenerate, trial, underway
from millrace.pack.codec import Codec, NotPackable
from millrace.pack.difference import Appended
from millrace.pack.files import zstd_bytes
from millrace.pack.hits import Hits
from millrace.pack.layout import MOST_BYTES, Kind, Writer
from millrace.pack.pipes import PipeEnds, through_pipes
from millrace.pack.plain import Packed, check, digest_of, pack_plain
from millrace.pack.queries import QueryBatch
from millrace.pack.recipe import Original, Recipe
from millrace.pack.regenerate import NOWHERE, Settings, is_plain
from millrace.pack.stripping import stripped
from millrace.pack.trial import Trial
from millrace.plan.plan import Plan
from millrace.words import shown

#: Queries of one batch: more make a smaller pack and fewer starts of the tool, but each query meets more entries.
BATCH = 50

#: Batches in one section.
BATCHES = 4096

#: A pack so many times smaller than the estimated size under zstd is not compared with the real one.
CLEARLY = 8


@dataclass(frozen=True)
class Wishes:
    """The user's options for packing."""

    settings: Settings
    #: Queries of one batch.
    batch: int = BATCH
    with_queries: bool = False
    #: See ``millrace.pack.age.recipients``; empty: the pack is not encrypted.
    encrypt_to: Sequence[Any] = ()
    #: Whether regenerating a few batches is enough, if the result begins and ends as they do.
    trust: bool = False
    #: Most seconds that a regeneration may take; None: no limit.
    effort: float | None = None


def pack(plan: Plan, outputs: Sequence[Path], dest: Path, wishes: Wishes, say: Callable[[str], None]) -> Packed:
    """Pack ``outputs``, written by the command of ``plan``, in the order of its outputs; plain if not possible as hits.

    Raises:
        MillraceError: A file cannot be read or written.
    """
    originals = tuple(
        Original(name=use.name, bytes=path.stat().st_size, sha256=digest_of(path))
        for use, path in zip(plan.use.outputs, outputs, strict=True)
    )
    try:
        return Packing(plan, outputs, originals, dest, wishes, say).pack()
    except (NotPackable, RefusedError, ToolError) as error:
        # The result itself is there, even if it cannot be regenerated.
        return pack_plain(outputs, originals, dest, error.message)


def codec_of(plan: Plan) -> Codec:
    """Return the codec for the result of a command.

    Raises:
        NotPackable: There is none.
    """
    codec = codecs.find(plan.use.adapter)
    if codec is None:
        raise NotPackable(f"there is no codec for the results of {plan.command.argv[0]}")
    return codec


class Packing:
    """A packer of one result as hits.

    Raises:
        NotPackable: The result cannot be packed as hits.
    """

    def __init__(
        self, plan: Plan, outputs: Sequence[Path], originals: tuple[Original, ...], dest: Path, wishes: Wishes,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._plan, self.codec, self._wishes, self._say = plan, codec_of(plan), wishes, say
        self._outputs, self._originals, self._dest = outputs, originals, dest
        if len(plan.use.inputs) != 1 or plan.use.inputs[0].path == "-" or plan.use.inputs[0].format == "files":
            raise NotPackable("the queries are not one file")
        self.queries = plan.command.cwd / plan.use.inputs[0].path
        self._use = regenerate.in_one_fragment(plan.use, plan.command)
        #: The format of the queries.
        self.item = plan.use.inputs[0]

    def pack(self) -> Packed:
        begun = time.monotonic()
        made = self.recipe()
        key = hashlib.sha256(recipe.encode(made) + b"%d" % self._wishes.batch).hexdigest()[:12]
        with underway.folder(self._dest, key) as folder:
            batches = self.batches(folder)
            found = self.read(folder, batches)
            read = time.monotonic() - begun
            regenerated = self._tried(folder, made, batches, found) or self.regenerate(
                folder, self.queries, made, batches, found
            )
            took = time.monotonic() - begun - read
            return self._write(folder, made, found, regenerated, (read, took))

    def recipe(self) -> Recipe:
        """Make the recipe of the result; reads the whole database, unless it is in the cache."""
        use, command = self._use, self._plan.command
        assert use.fragmented  # see ``regenerate.in_one_fragment``
        return Recipe(
            codec=use.adapter, millrace=__version__, outputs=self._originals, tool=Path(command.argv[0]).name, version=use.version,
            arguments=self._arguments(use.fragmented.finish[1:]),
            queries=recipe.Queries(name=self.queries.name, bytes=self.queries.stat().st_size, sha256=digest_of(self.queries)),
            database=self.codec.database(use, command),
        )  # fmt: skip

    def _arguments(self, tokens: Sequence[Token]) -> tuple[Token, ...]:
        for token in tokens:
            text = token if isinstance(token, str) else ""
            is_file = (
                text not in ("", NOWHERE) and not text.startswith("-") and (self._plan.command.cwd / text).exists()
            )
            if not is_plain(text) or is_file:
                raise NotPackable(f"the argument {shown(text)} names a file, or cannot be shown: it does not travel")
        return tuple(tokens)

    def batches(self, folder: Path) -> list[QueryBatch]:
        """Cut the queries into batches."""
        return list(queries.batches(self.queries, self.item, repeat(self._wishes.batch), folder / "batch"))

    def read(self, folder: Path, batches: Sequence[QueryBatch]) -> list[Hits]:
        """Return the hits of each batch, from the result, or by a second search."""
        found = self.codec.read(self._use, self._plan.command, self._outputs, batches)
        return self._search(folder, batches) if found is None else found

    def _search(self, folder: Path, batches: Sequence[QueryBatch]) -> list[Hits]:
        """Search a second time, as the result does not name the hits of each query."""
        command, place = self._plan.command, folder / "table"
        argv = self.codec.searching(command.argv, str(place))
        if argv is None:
            raise NotPackable("it cannot be told which query a line of the result is of")
        self._say("the result does not tell which query hit which entry: searching once more")
        plan = regenerate.search(argv, command.cwd, folder, self._wishes.settings)
        found = self.codec.read(self._use, plan.command, [place], batches)
        if found is None:
            raise NotPackable("it cannot be told which query a hit is of")
        return found

    def _tried(
        self, folder: Path, made: Recipe, batches: Sequence[QueryBatch], found: Sequence[Hits]
    ) -> list[Path] | None:
        """Return the outputs of a full regeneration as confirmed by a trial; None: it fails, or is not wanted.

        Raises:
            NotPackable: Regenerating would take longer than the user's limit.
        """
        effort, trust = self._wishes.effort, self._wishes.trust
        if effort is None and not (trust and len(batches) > trial.BATCHES):
            return None
        tried = self.trial(folder / "trial", made, batches, found)
        if effort is not None and tried.cost.all_of_it() > effort:
            raise NotPackable(
                f"to regenerate it takes about {tried.cost.all_of_it():,.0f} s, more than the {effort:g} s of --effort"
            )
        trusted = tried.trusted(self.codec, self._outputs, folder) if trust else None
        if trust:
            self._say(
                "regenerated the first batches, and trusted the rest"
                if trusted
                else "the first batches do not tell enough: regenerating all"
            )
        return trusted

    def trial(self, folder: Path, made: Recipe, batches: Sequence[QueryBatch], found: Sequence[Hits]) -> Trial:
        """Regenerate the first batches."""

        def regeneration(place: Path, source: Path, few: Sequence[QueryBatch], hits: Sequence[Hits]) -> Plan:
            return self.regeneration(place, source, made, few, hits)

        return trial.take(regeneration, self.codec, (self.queries, self.item), folder, batches, found)

    def regenerate(
        self, folder: Path, source: Path, made: Recipe, batches: Sequence[QueryBatch], found: Sequence[Hits]
    ) -> list[Path]:
        """Regenerate the outputs for the queries of ``source``, which are ``batches``; stripped."""
        plan = self.regeneration(folder, source, made, batches, found)
        return stripped(self.codec, plan, regenerate.run(plan))

    def regeneration(
        self, folder: Path, source: Path, made: Recipe, batches: Sequence[QueryBatch], found: Sequence[Hits], pipes: Sequence[PipeEnds] = (),
    ) -> Plan:  # fmt: skip
        """Plan the run that regenerates the outputs for the queries of ``source``, which are ``batches``.

        Args:
            pipes: Pipes for the outputs; none: they are files.
        """
        settings, command = self._wishes.settings, self._plan.command
        argv = regenerate.command_line(
            command.argv[0] if "/" not in command.argv[0] else str(command.exe), made.arguments,
            self.codec.database_argument(self._use, command),
        )  # fmt: skip
        plan = regenerate.plan(folder, source, argv, self.codec, settings, made.database)
        plan = through_pipes(plan, pipes) if pipes else plan
        if not regenerate.is_begun(plan):
            blocks = self.codec.found(plan.use, plan.command, found)
            regenerate.put(plan, zip(batches, blocks, strict=True))
        return plan

    def _write(
        self,
        folder: Path,
        made: Recipe,
        found: Sequence[Hits],
        regenerated: Sequence[Path],
        seconds: tuple[float, float],
    ) -> Packed:
        if len(found) > hits.MAX_BATCHES:
            raise NotPackable(
                "it is of more batches of queries than a pack may have: more queries a batch are kept with --batch N"
            )
        writer = Writer(self._dest)
        try:
            writer.add(Kind.RECIPE, recipe.encode(made))
            before = writer.size
            if self._wishes.with_queries:
                write_queries(writer, self.queries)
            of_queries, before = writer.size - before, writer.size
            for at in range(0, len(found), BATCHES):
                writer.add(Kind.HITS, hits.encode(found[at : at + BATCHES]))
            of_hits, before = writer.size - before, writer.size
            for index, (original, again) in enumerate(zip(self._outputs, regenerated, strict=True)):
                difference.write(writer, index, original, again)
            of_differences = writer.size - before
            self._compare_with_zstd(writer.size - of_queries, folder / "plain")
            writer.finish(lambda path: check(path, self._originals, regenerated))
        finally:
            writer.give_up()
        n_bytes = sum(each.bytes for each in self._originals)
        return Packed(n_bytes, writer.size, of_hits, of_differences, "", "", *seconds)

    def _compare_with_zstd(self, packed: int, scratch: Path) -> None:
        """Check that the pack is smaller than the result under zstd; compress that only if an estimate is close."""
        if CLEARLY * packed < zstd_bytes(self._outputs):
            return
        if pack_plain(self._outputs, self._originals, scratch, "").packed <= packed:
            raise NotPackable("its meaning takes more bytes than zstd")


def write_queries(writer: Appended, path: Path) -> None:
    """Append the file of queries to a pack."""
    with path.open("rb") as file:
        while data := file.read(MOST_BYTES):
            writer.add(Kind.QUERIES, data)
