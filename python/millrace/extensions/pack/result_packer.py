"""Packer of results: as hits if that is smaller, else as plain bytes.

Each pack is checked to restore the result. The same command resumes an interrupted start from the files in its
folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from millrace import __version__
from millrace.core.errors import CorruptError, MillraceError, RefusedError, ToolError
from millrace.core.text_format import escape_unprintable
from millrace.core.tool_use import ArgumentToken
from millrace.extensions.pack import (
    difference,
    hits,
    layout,
    output_texts,
    pack_destinations,
    regeneration_run,
    regeneration_trial,
    result_codec,
)
from millrace.extensions.pack import result_codec as codecs
from millrace.extensions.pack.difference import SectionSink, estimate_zstd_bytes, strip_outputs
from millrace.extensions.pack.hits import BatchHits
from millrace.extensions.pack.layout import (
    MAX_SECTION_BYTES,
    OriginalOutput,
    PackedTexts,
    PackRecipe,
    PackWriter,
    SectionKind,
)
from millrace.extensions.pack.regeneration_run import NOWHERE, RegenerationSettings, is_plain_argument
from millrace.extensions.pack.regeneration_trial import RegenerationTrial
from millrace.extensions.pack.result_codec import NotPackableError, QueryBatch, ResultCodec
from millrace.extensions.pack.result_files import PackSummary, check_pack_contents, compute_sha256, pack_plain
from millrace.host import file_lock
from millrace.planning.run_plan import RunPlan

#: Longest wait for a process that only probes the lock.
LOCK_WAIT_SECONDS = 2.0

#: Errors that the same command would raise again: nothing is kept to resume.
_FINAL = (NotPackableError, RefusedError, ToolError, CorruptError)


@contextmanager
def open_packing_folder(dest: Path, of: str) -> Iterator[Path]:
    """Make and lock the folder in which ``dest`` is packed; remove it on exit unless it can be resumed.

    Args:
        of: Key of the result; those of others are removed.

    Raises:
        MillraceError: Another process is packing into ``dest``.
    """
    place = dest.with_name(f".{dest.name}.pack")
    # Neither may be a refusal, after which the result would be packed as plain bytes.
    try:
        pack_destinations.claim_folder(place)
        held = pack_destinations.wait_for_lock(place / "lock", LOCK_WAIT_SECONDS)
    except RefusedError as error:
        raise MillraceError(error.message, error.hint) from error
    except file_lock.LockHeldError as error:
        raise MillraceError(f"{dest}: another millrace ({error.words}) is packing into it", "wait for it") from error
    done = True
    try:
        work = place / of
        for other in place.iterdir():
            if other.is_dir() and other != work:
                shutil.rmtree(other)
        work.mkdir(exist_ok=True)
        yield work
    except _FINAL:
        raise
    except BaseException:
        done = not (place / of / regeneration_run.RUN).exists()
        raise
    finally:
        if done:
            shutil.rmtree(place, ignore_errors=True)
        held.close()
        if done:
            pack_destinations.remove_emptied_folder(place)


#: Queries of one batch: more make a smaller pack and fewer starts of the tool, but each query meets more entries.
QUERIES_PER_BATCH = 50

#: Batches in one section.
MAX_SECTION_BATCHES = 4096

#: A pack so many times smaller than the estimated size under zstd is not compared with the real one.
MIN_CLEAR_RATIO = 8


@dataclass(frozen=True)
class PackOptions:
    """The user's options for packing."""

    settings: RegenerationSettings
    #: Queries of one batch.
    batch: int = QUERIES_PER_BATCH
    with_queries: bool = False
    #: See ``millrace.extensions.pack.age_encryption.parse_recipients``; empty: the pack is not encrypted.
    encrypt_to: Sequence[Any] = ()
    #: Whether regenerating a few batches is enough, if the result begins and ends as they do.
    trust: bool = False
    #: Most seconds that a regeneration may take; None: no limit.
    effort: float | None = None
    #: Share of the batches that are regenerated and compared with the command itself, if it was not run.
    verify: float = 0.0


def pack_result(
    plan: RunPlan, outputs: Sequence[Path], dest: Path, wishes: PackOptions, say: Callable[[str], None]
) -> PackSummary:
    """Pack ``outputs``, written by the command of ``plan``, in the order of its outputs; plain if not possible as hits.

    Raises:
        MillraceError: A file cannot be read or written.
    """
    originals = tuple(
        OriginalOutput(name=use.name, bytes=path.stat().st_size, sha256=compute_sha256(path))
        for use, path in zip(plan.use.outputs, outputs, strict=True)
    )
    try:
        return ResultPacker(plan, outputs, originals, dest, wishes, say).pack()
    except (NotPackableError, RefusedError, ToolError) as error:
        # The result itself is there, even if it cannot be regenerated.
        return pack_plain(outputs, originals, dest, error.message)


def get_result_codec(plan: RunPlan) -> ResultCodec:
    """Return the codec for the result of a command.

    Raises:
        NotPackableError: There is none.
    """
    codec = codecs.find_result_codec(plan.use.adapter)
    if codec is None:
        raise NotPackableError(f"there is no codec for the results of {plan.command.argv[0]}")
    return codec


class ResultPacker:
    """A packer of one result as hits.

    Raises:
        NotPackableError: The result cannot be packed as hits.
    """

    def __init__(
        self, plan: RunPlan, outputs: Sequence[Path], originals: tuple[OriginalOutput, ...], dest: Path, wishes: PackOptions,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._plan, self.codec, self.wishes, self._say = plan, get_result_codec(plan), wishes, say
        self._outputs, self._originals, self._dest = outputs, originals, dest
        if len(plan.use.inputs) != 1 or plan.use.inputs[0].path == "-" or plan.use.inputs[0].format == "files":
            raise NotPackableError("the queries are not one file")
        self.queries = plan.command.cwd / plan.use.inputs[0].path
        self._use = regeneration_run.treat_as_one_fragment(plan.use, plan.command)
        #: The format of the queries.
        self.item = plan.use.inputs[0]

    def pack(self) -> PackSummary:
        made = self.make_recipe()
        key = hashlib.sha256(layout.encode_recipe(made) + b"%d" % self.wishes.batch).hexdigest()[:12]
        with open_packing_folder(self._dest, key) as folder:
            batches = self.cut_queries(folder)
            found = self.find_hits(folder, batches)
            begun = time.monotonic()
            regenerated = self._try_first_batches(folder, made, batches, found) or self.regenerate_outputs(
                folder, self.queries, made, batches, found
            )
            return self._write_pack(folder, made, found, regenerated, time.monotonic() - begun)

    def make_recipe(self) -> PackRecipe:
        """Make the recipe of the result; reads the whole database, unless it is in the cache."""
        use, command = self._use, self._plan.command
        assert use.fragmented  # see ``regeneration_run.treat_as_one_fragment``
        return PackRecipe(
            codec=use.adapter, millrace=__version__, outputs=self._originals, tool=Path(command.argv[0]).name, version=use.version,
            arguments=self._check_arguments(use.fragmented.finish[1:]),
            queries=layout.PackedQueries(name=self.queries.name, bytes=self.queries.stat().st_size, sha256=compute_sha256(self.queries)),
            database=self.codec.describe_database(use, command),
        )  # fmt: skip

    def _check_arguments(self, tokens: Sequence[ArgumentToken]) -> tuple[ArgumentToken, ...]:
        for token in tokens:
            text = token if isinstance(token, str) else ""
            is_file = (
                text not in ("", NOWHERE) and not text.startswith("-") and (self._plan.command.cwd / text).exists()
            )
            if not is_plain_argument(text) or is_file:
                raise NotPackableError(
                    f"the argument {escape_unprintable(text)} names a file, or cannot be shown: it does not travel"
                )
        return tuple(tokens)

    def cut_queries(self, folder: Path) -> list[QueryBatch]:
        """Cut the queries into batches."""
        return list(
            result_codec.cut_query_batches(self.queries, self.item, repeat(self.wishes.batch), folder / "batch")
        )

    def find_hits(self, folder: Path, batches: Sequence[QueryBatch]) -> list[BatchHits]:
        """Return the hits of each batch, from the result, or by a second search."""
        found = self.codec.read_result_hits(self._use, self._plan.command, self._outputs, batches)
        return self._search_again(folder, batches) if found is None else found

    def _search_again(self, folder: Path, batches: Sequence[QueryBatch]) -> list[BatchHits]:
        """Search a second time, as the result does not name the hits of each query."""
        command, place = self._plan.command, folder / "table"
        argv = self.codec.build_search_command(command.argv, str(place))
        if argv is None:
            raise NotPackableError("it cannot be told which query a line of the result is of")
        self._say("the result does not tell which query hit which entry: searching once more")
        plan = regeneration_run.run_search(argv, command.cwd, folder, self.wishes.settings)
        found = self.codec.read_result_hits(self._use, plan.command, [place], batches)
        if found is None:
            raise NotPackableError("it cannot be told which query a hit is of")
        return found

    def _try_first_batches(
        self, folder: Path, made: PackRecipe, batches: Sequence[QueryBatch], found: Sequence[BatchHits]
    ) -> list[Path] | None:
        """Return the outputs of a full regeneration as confirmed by a trial; None: it fails, or is not wanted.

        Raises:
            NotPackableError: Regenerating would take longer than the user's limit.
        """
        effort, trust = self.wishes.effort, self.wishes.trust
        if effort is None and not (trust and len(batches) > regeneration_trial.BATCHES):
            return None
        tried = self.run_trial(folder / "trial", made, batches, found)
        if effort is not None and tried.cost.estimate_total_seconds() > effort:
            raise NotPackableError(
                f"to regenerate it takes about {tried.cost.estimate_total_seconds():,.0f} s, more than the {effort:g} s of --effort"
            )
        trusted = tried.strip_trusted_outputs(self.codec, self._outputs, folder) if trust else None
        if trust:
            self._say(
                "regenerated the first batches, and trusted the rest"
                if trusted
                else "the first batches do not tell enough: regenerating all"
            )
        return trusted

    def run_trial(
        self, folder: Path, made: PackRecipe, batches: Sequence[QueryBatch], found: Sequence[BatchHits]
    ) -> RegenerationTrial:
        """Regenerate the first batches."""

        def regeneration(place: Path, source: Path, few: Sequence[QueryBatch], hits: Sequence[BatchHits]) -> RunPlan:
            return self.plan_regeneration(place, source, made, few, hits)

        return regeneration_trial.run_trial(regeneration, self.codec, (self.queries, self.item), folder, batches, found)

    def regenerate_outputs(
        self, folder: Path, source: Path, made: PackRecipe, batches: Sequence[QueryBatch], found: Sequence[BatchHits]
    ) -> list[Path]:
        """Regenerate the outputs for the queries of ``source``, which are ``batches``; stripped."""
        plan = self.plan_regeneration(folder, source, made, batches, found)
        return strip_outputs(self.codec, plan, regeneration_run.run_regeneration(plan))

    def plan_regeneration(
        self, folder: Path, source: Path, made: PackRecipe, batches: Sequence[QueryBatch], found: Sequence[BatchHits], key: str = "",
    ) -> RunPlan:  # fmt: skip
        """Plan the run that regenerates the outputs for the queries of ``source``, which are ``batches``.

        Args:
            key: See ``regeneration_run.get_output_name``.
        """
        settings, argv = self.wishes.settings, self.build_command_line(made, key)
        plan = regeneration_run.plan_regeneration_run(folder, source, argv, self.codec, settings, made.database, key)
        if not regeneration_run.has_current_hits(plan):
            blocks = self.codec.format_search_blocks(plan.use, plan.command, found)
            regeneration_run.write_search_journal(plan, zip(batches, blocks, strict=True))
        return plan

    def collect_texts(self, folder: Path, made: PackRecipe) -> PackedTexts:
        """Collect the texts of the outputs from a regeneration of the first query without hits, in the new ``folder``.

        Raises:
            NotPackableError: There is no query.
        """
        folder.mkdir()
        sample = folder / "sample"
        first = next(result_codec.cut_query_batches(self.queries, self.item, [1], sample), None)
        if first is None:
            raise NotPackableError("there are no queries")
        plan = self.plan_regeneration(folder, sample, made, [first], [BatchHits(1, [])])
        outputs, command = regeneration_run.run_regeneration(plan), self._plan.command
        return output_texts.collect_texts(self.codec, self._plan.use, command.cwd, outputs, folder)

    def search_whole(self, folder: Path, source: Path, made: PackRecipe) -> list[Path]:
        """Run the command itself for the queries of ``source``; return the outputs as ``regenerate_outputs`` does."""
        folder.mkdir()
        plan = regeneration_run.plan_whole_search(folder, source, self.build_command_line(made), self.wishes.settings)
        outputs = strip_outputs(self.codec, plan, regeneration_run.run_regeneration(plan))
        assert self._use.fragmented  # see ``regeneration_run.treat_as_one_fragment``
        given, typed = self.codec.format_database_argument(self._use, self._plan.command), self._use.fragmented.database
        for path in outputs:
            path.write_bytes(path.read_bytes().replace(os.fsencode(given), os.fsencode(typed)))
        return outputs

    def build_command_line(self, made: PackRecipe, key: str = "") -> tuple[str, ...]:
        """Build the command of a regeneration here; ``key`` as in ``plan_regeneration``."""
        command = self._plan.command
        tool = command.argv[0] if "/" not in command.argv[0] else str(command.exe)
        database = self.codec.format_database_argument(self._use, command)
        return regeneration_run.build_command_line(tool, made.arguments, database, key)

    def _write_pack(
        self,
        folder: Path,
        made: PackRecipe,
        found: Sequence[BatchHits],
        regenerated: Sequence[Path],
        seconds: float,
    ) -> PackSummary:
        if len(found) > hits.MAX_BATCHES:
            raise NotPackableError(
                "it is of more batches of queries than a pack may have: more queries a batch are kept with --batch N"
            )
        writer = PackWriter(self._dest)
        try:
            writer.add(SectionKind.RECIPE, layout.encode_recipe(made))
            before = writer.size
            if self.wishes.with_queries:
                pack_queries(writer, self.queries)
            of_queries, before = writer.size - before, writer.size
            for at in range(0, len(found), MAX_SECTION_BATCHES):
                writer.add(SectionKind.HITS, hits.encode_hits(found[at : at + MAX_SECTION_BATCHES]))
            of_hits, before = writer.size - before, writer.size
            for index, (original, again) in enumerate(zip(self._outputs, regenerated, strict=True)):
                difference.write_differences(writer, index, original, again)
            of_differences = writer.size - before
            self._compare_with_zstd(writer.size - of_queries, folder / "plain")
            writer.finish(lambda path: check_pack_contents(path, self._originals, regenerated))
        finally:
            writer.discard_unfinished()
        n_bytes = sum(each.bytes for each in self._originals)
        return PackSummary(n_bytes, writer.size, of_hits, of_differences, "", "", seconds)

    def _compare_with_zstd(self, packed: int, scratch: Path) -> None:
        """Check that the pack is smaller than the result under zstd; compress that only if an estimate is close."""
        if MIN_CLEAR_RATIO * packed < estimate_zstd_bytes(self._outputs):
            return
        if pack_plain(self._outputs, self._originals, scratch, "").packed <= packed:
            raise NotPackableError("its meaning takes more bytes than zstd")


def pack_queries(writer: SectionSink, path: Path) -> None:
    """Append the file of queries to a pack."""
    with path.open("rb") as file:
        while data := file.read(MAX_SECTION_BYTES):
            writer.add(SectionKind.QUERIES, data)
