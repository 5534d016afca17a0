"""The files of a result to pack, the plan of the command that made it, and packs of plain bytes, without a command.

A run directory that was kept can be packed without naming its files. A pack is checked by restoring its outputs.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from millrace import __version__
from millrace.adapters import registry
from millrace.core.errors import CorruptError, MillraceError, RefusedError
from millrace.core.job import JobSpec
from millrace.core.replica_rules import has_url_arguments
from millrace.core.text_format import format_size
from millrace.extensions.pack import difference, layout, result_codec
from millrace.extensions.pack.difference import AS_IT_IS, FileCodec, estimate_zstd_bytes
from millrace.extensions.pack.layout import OriginalOutput, PackRecipe, PackWriter, SectionKind, read_sections
from millrace.extensions.pack.result_codec import NotPackableError
from millrace.host.permissions import find_trust_problem
from millrace.launch.mpi_environment import remove_mpi_variables
from millrace.output.journal_gather import gather_output
from millrace.planning import run_plan as planner
from millrace.planning.run_plan import RunPlan
from millrace.rundir.paths import RunDir, RunManifest


@dataclass(frozen=True)
class KeptRun:
    """The command of a run, and its outputs."""

    argv: tuple[str, ...]
    cwd: Path
    #: In the order of the command's options.
    outputs: tuple[Path, ...]


def is_run_directory(path: Path) -> bool:
    """Tell whether ``path`` is a run directory."""
    return path.is_dir() and RunDir(path).has_run()


@contextmanager
def gather_kept_outputs(run_dir: Path, scratch: Path) -> Iterator[KeptRun]:
    """Gather the outputs of a run from its journals into ``scratch``, check every checksum, and remove them on exit.

    The files that the run wrote are not read: they may have changed.

    Args:
        scratch: An empty folder.

    Raises:
        RefusedError: The run is incomplete, not trusted, or writes folders.
        CorruptError: A journal is damaged.
    """
    manifest = RunDir(run_dir).read_manifest()
    _refuse_unpackable_run(run_dir, manifest)
    written = [scratch / f"written{number}" for number, _ in enumerate(manifest.use.outputs)]
    try:
        for use, path in zip(manifest.use.outputs, written, strict=True):
            if missing := gather_output(run_dir, use.name, str(path), ignore_errors=False).missing:
                raise RefusedError(f"{run_dir}: {missing[0]}", "resume it: type the command of the run again")
        yield KeptRun(manifest.argv, Path(manifest.cwd), tuple(written))
    finally:
        for path in written:
            path.unlink(missing_ok=True)


def _refuse_unpackable_run(run_dir: Path, manifest: RunManifest) -> None:
    if why := find_trust_problem(run_dir):
        raise RefusedError(
            f"{run_dir}: {why}, and packing runs the command that is in it",
            "name the command after --, if you trust it: millrace pack RESULT -o PACK -- COMMAND",
        )
    if manifest.use.fragmented and manifest.use.fragmented.backend:
        raise RefusedError(f"{run_dir}: the result was not computed in this run", "name the pack that it has made")
    if any(use.layout != "file" for use in manifest.use.outputs):
        raise RefusedError(
            f"{run_dir}: the run writes a file for each record, and a pack holds single files", "pack them with tar"
        )
    if not RunDir(run_dir).list_journals():
        raise RefusedError(f"{run_dir}: the results of this run are not kept", "name its command after --")


def plan_result_command(argv: tuple[str, ...], cwd: Path, slots: int | None) -> RunPlan:
    """Plan the command that made a result, without its options for speed alone.

    Raises:
        MillraceError: The command is refused, or missing.
    """
    if not cwd.is_dir():
        raise RefusedError(f"{cwd}: is not there any more, where the command was run")
    if has_url_arguments(argv[1:]):
        raise RefusedError("the command names files by URLs, which do not travel", "name copies of them")
    family = result_codec.find_result_codec(registry.MODULES.get(Path(argv[0]).name, ""))
    if family:
        argv = tuple(family.drop_speed_options(argv))
    return planner.make_plan(
        JobSpec(command=argv, slots=slots, fragments="1", verify=0.0), cwd, remove_mpi_variables(os.environ)
    )


def find_named_results(argv: tuple[str, ...], results: tuple[Path, ...], cwd: Path, error: MillraceError) -> list[Path]:
    """Return the result files of a command that cannot be planned; ``error`` is the reason.

    Raises:
        MillraceError: No file is named, or one is missing.
    """
    known = result_codec.find_result_codec(registry.MODULES.get(Path(argv[0]).name, ""))
    found = [cwd / each for each in results]
    with suppress(RefusedError):
        found = found or [cwd / each for each in (known.list_output_paths(argv) if known else [])]
    if not found:
        raise RefusedError(error.message, "its result is packed as it is if it is named: millrace pack RESULT ...")
    if missing := [path for path in found if not path.is_file()]:
        raise RefusedError(f"{missing[0]}: no such file", "name the result: millrace pack RESULT ...") from error
    return found


def find_output_files(plan: RunPlan, results: tuple[Path, ...]) -> list[Path]:
    """Return the files with the outputs of the command, in its order.

    Raises:
        RefusedError: A file or its name is missing.
    """
    named = [plan.command.cwd / each.path if each.path != "-" else None for each in plan.use.outputs]
    if len(results) == len(named):
        named = [plan.command.cwd / each for each in results]
    elif results:
        raise RefusedError(
            f"the command writes {len(named)} outputs, and {len(results)} results are named",
            "name all in the order of the command's options, or none, if the command names its files",
        )
    found = []
    for path, use in zip(named, plan.use.outputs, strict=True):
        if path is None:
            raise RefusedError(
                f"the command writes {'its result' if use.name == 'stdout' else use.name} to standard output",
                "name the file that it went to: millrace pack RESULT ...",
            )
        if use.layout != "file" or not path.is_file():
            raise RefusedError(f"{path}: no such file", "name the result: millrace pack RESULT ...")
        found.append(path)
    return found


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
    #: Seconds of regenerating.
    regenerate_seconds: float = 0.0

    def describe_packing(self, dest: Path) -> str:
        """Return a line for the user about the pack ``dest``."""
        if not self.original and self.how:  # it was never computed
            return f"{dest}: {format_size(self.packed)}, {self.how}"
        ratio = self.original / max(self.packed, 1)
        smaller = f" ({ratio:,.{0 if ratio >= 10 else 1}f} times smaller)" if ratio >= 1.05 else ""
        told = f"{dest}: {format_size(self.original)} in {format_size(self.packed)}{smaller}"
        if self.why_plain:
            return f"{told}, compressed with zstd: {self.why_plain}"
        if self.how:
            return f"{told}, {self.how}"
        again = f"; regenerated in {self.regenerate_seconds:.1f} s" if self.regenerate_seconds else ""
        return f"{told}: hits {format_size(self.hits)}, differences {format_size(self.differences)}{again}"


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
            SectionKind.RECIPE, layout.encode_recipe(PackRecipe(codec="zstd", millrace=__version__, outputs=originals))
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
        try:
            size = _pack_traces(paths, originals, trace)
            # The highest level of zstd takes long, and gives at least half of what the estimate is.
            if 2 * size >= estimate_zstd_bytes(paths) and pack_plain(paths, originals, plain, "").packed <= size:
                raise NotPackableError("as a periodic trace it takes more bytes than by zstd")
            best, packed = trace, PackSummary(sum(each.bytes for each in originals), size, how="as a periodic trace")
        except (NotPackableError, RefusedError, CorruptError) as error:
            is_misread = isinstance(error, CorruptError)
            why = "what is read of its columns is not all that it says" if is_misread else error.message
            best, packed = plain, pack_plain(paths, originals, plain, why)
        os.replace(best, dest)
    return packed


def _pack_traces(paths: Sequence[Path], originals: tuple[OriginalOutput, ...], dest: Path) -> int:
    """Pack files, those that are traces as such; return the bytes of the pack."""
    codec, kept = difference.find_file_codec("trace"), difference.find_file_codec("beside-traces")
    assert codec and kept  # they are built in
    writer, why_not = PackWriter(dest), list[NotPackableError]()
    try:
        writer.add(
            SectionKind.RECIPE, layout.encode_recipe(PackRecipe(codec="trace", millrace=__version__, outputs=originals))
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
