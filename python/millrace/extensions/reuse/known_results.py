"""Results of whole batches, known by the bytes of their records: what a tool wrote for them is written again.

*Exactness.* The output of a batch does not depend on where in the input it stands: that is what every run relies on. So
the result of a batch may be that of an earlier run of the same program, with the same arguments, files and variables, on
the same records. Where records that stand beside a batch decide where it may begin, all of the input must be the same.
Results of unknown programs are not kept: such a program may read files that its command does not name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from millrace import __version__, _core
from millrace.adapters.adapter_base import NUL
from millrace.adapters.printed_paths import DATABASE, FOLDER, INPUT, OUTPUT, list_printed_paths
from millrace.adapters.tool_environment import TABLES
from millrace.core.journal_blocks import map_blocks
from millrace.core.record_digests import DIGEST_BYTES
from millrace.core.tasks import CommittedRecords
from millrace.extensions.pack.regeneration_run import BatchResult
from millrace.extensions.pack.result_codec import NotPackableError
from millrace.extensions.reuse.search_store import KeptResult, SearchStore
from millrace.extensions.reuse.sequence_digests import digest_files
from millrace.node.batch_files import open_reader
from millrace.output.output_parts import select_effective_tasks
from millrace.planning import result_fingerprint, run_identity
from millrace.planning.program_lookup import explain_doubts, is_unknown_tool
from millrace.planning.run_plan import RunPlan
from millrace.rundir.paths import RunDir

#: Largest outputs of a batch that are kept.
MAX_RESULT_BYTES = 64 << 20

#: Variables that say where files are, whose content is compared, or how a terminal looks.
_PLACES = {"BLASTDB", "NCBI_CONFIG__BLAST__BLASTDB", "NCBI", "HOME", "PATH", "PWD", "TMPDIR", "COLUMNS", "TERM"}

#: Variables of the C library that any program may heed.
_OF_LIBRARY = ("LANG", "LANGUAGE", "TZ", "POSIXLY_CORRECT")


class KnownBatch(NamedTuple):
    """A batch of the input whose result is kept."""

    first: int
    last: int
    content: bytes


class KnownResults(NamedTuple):
    """What is known of the results of a run before it begins."""

    key: str
    #: Digests of all records, one after the other.
    records: bytes
    #: Digests of the sequences of those with a title.
    queries: bytes
    #: In input order.
    batches: Sequence[KnownBatch]

    @property
    def n_records(self) -> int:
        """Number of records of the input."""
        return len(self.records) // DIGEST_BYTES

    @property
    def n_known(self) -> int:
        """Number of records whose results are known."""
        return sum(batch.last - batch.first for batch in self.batches)

    def digest_batch(self, first: int, last: int) -> bytes:
        """Return the digest of the records ``[first, last)``."""
        return hashlib.sha256(self.records[first * DIGEST_BYTES : last * DIGEST_BYTES]).digest()[:DIGEST_BYTES]

    def list_unknown(self) -> list[bool]:
        """List, for each record, whether its result is not known."""
        found = [True] * self.n_records
        for first, last, _ in self.batches:
            found[first:last] = [False] * (last - first)
        return found


def find_known_results(plan: RunPlan, store: SearchStore) -> KnownResults:
    """Find the batches of the input whose results the store has.

    Raises:
        NotPackableError: Results of such a run are not kept; says why.
        CorruptError: The store is damaged.
        OSError: A file cannot be read.
    """
    _refuse_unknown_content(plan)
    item = plan.use.inputs[0]
    try:
        reader = _open_input(plan)
        header = reader.header
        records, queries, n_sufficient = reader.digest_records()
    except _core.RecordError as error:
        raise NotPackableError(str(error)) from error
    # Where every record can stand alone, a batch may begin anywhere.
    is_free = not item.pass_residues and n_sufficient * DIGEST_BYTES == len(records)
    key = _digest_computation(plan, [header, b"" if is_free else records], store)
    found = KnownResults(key, records, queries, ())
    if plan.job.fresh:
        return found
    return found._replace(batches=list(_match_batches(found, store.list_results(key))))


def _open_input(plan: RunPlan) -> _core.Reader:
    item = plan.use.inputs[0]
    return open_reader([str(plan.command.cwd / item.path)], item, plan.job.record_start, plan.job.record_end)


def _refuse_unknown_content(plan: RunPlan) -> None:
    """Check that all that a result depends on is known before the run.

    Raises:
        NotPackableError: It is not; says why.
    """
    use, command = plan.use, plan.command
    if is_unknown_tool(use):
        why = explain_doubts(use, command.tool)
        raise NotPackableError(f"{why}, so it may read files that no argument names")
    if (
        len(use.inputs) != 1
        or use.inputs[0].path == "-"
        or NUL in use.inputs[0].path
        or use.inputs[0].format == "files"
    ):
        raise NotPackableError("the input is not one plain file")
    if use.inputs[0].dealt:
        raise NotPackableError("the tool does not take the records in the order of the input")
    if use.served:
        raise NotPackableError("the program stays alive from record to record")
    if command.view or command.growing:
        raise NotPackableError("files are behind URLs, or not here yet")


def _digest_computation(plan: RunPlan, around: Sequence[bytes], store: SearchStore) -> str:
    """Digest all that the result of a batch depends on, other than its records."""
    use, command = plan.use, plan.command
    cache, save = store.digests, store.saves_digests
    prints = {name: text for name, text in plan.fingerprints.items() if not name.startswith(("input ", "database "))}
    prints[f"program {command.exe}"] = f"{use.version}; {digest_files([command.exe], cache, save=save)}"
    files = [command.cwd / path for path in use.databases]
    contents = digest_files([path for path in files if path.is_file()], cache, save=save)
    named = [path for path, file in zip(use.databases, files, strict=True) if file.is_file()]
    prints |= {f"database {path}": text for path, text in zip(named, contents, strict=True)}
    run = run_identity.PlannedRun(
        argv=command.argv, cwd=str(command.cwd), use=use, record_start=plan.job.record_start,
        record_end=plan.job.record_end, fingerprints=prints,
    )  # fmt: skip
    parts = (
        __version__, use.adapter, run_identity.digest_identity(run), _list_shown_paths(plan), sorted(_select_variables(plan).items()),
        sorted(use.env.items()), use.threads, [hashlib.sha256(each).hexdigest() for each in around],
    )  # fmt: skip
    digest = hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()
    return f"results {command.tool} {digest}"


def _list_shown_paths(plan: RunPlan) -> list[object]:
    """List the paths that the output may show, as they are in it."""
    printed = list_printed_paths(plan.use)
    kinds, command = printed.frame | printed.records, plan.command
    shown: dict[str, object] = {
        INPUT: [item.path for item in plan.use.inputs],
        OUTPUT: [output.path for output in plan.use.outputs],
        DATABASE: command.argv,
        FOLDER: str(command.cwd),
    }
    return [shown[kind] for kind in sorted(kinds)]


def _select_variables(plan: RunPlan) -> Mapping[str, str]:
    """Return the variables that the program may heed, or their digests."""
    environ, table = plan.command.environ, TABLES.get(plan.use.adapter)
    if table is None:
        return result_fingerprint.digest_environment(environ, "")
    return {
        name: value for name, value in environ.items()
        if name not in _PLACES and (name in _OF_LIBRARY or name.startswith("LC_") or table.classify_variable(name))
    }  # fmt: skip


def _match_batches(known: KnownResults, kept: Sequence[tuple[bytes, int, bytes]]) -> Iterator[KnownBatch]:
    """Yield the batches of the input whose results are kept, the longest first at each place."""
    by_first: dict[bytes, list[tuple[int, bytes]]] = {}
    for first, n_records, content in sorted(kept, key=lambda row: -row[1]):
        by_first.setdefault(first, []).append((n_records, content))
    at = 0
    while at < known.n_records:
        step = 1
        for n_records, content in by_first.get(known.records[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES], ()):
            if at + n_records <= known.n_records and known.digest_batch(at, at + n_records) == content:
                yield KnownBatch(at, at + n_records, content)
                step = n_records
                break
        at += step


def read_known_results(known: KnownResults, store: SearchStore) -> Iterator[tuple[KnownBatch, BatchResult]]:
    """Yield the known batches with their results; a damaged one is left out."""
    kept = store.recall_results(known.key, (batch.content for batch in known.batches))
    for batch, each in zip(known.batches, kept, strict=True):
        if each:
            yield batch, BatchResult(batch.first, batch.last, *_decode_blocks(each))


_Blocks = tuple[tuple[int, int], list[tuple[int, bytes, bytes]]]


def _decode_blocks(kept: KeptResult) -> _Blocks:
    found: _Blocks = msgspec.msgpack.decode(_core.unpack(kept.blocks), type=_Blocks)
    return found


def list_committed_results(plan: RunPlan) -> list[CommittedRecords]:
    """List the results in the journals of a run, in input order."""
    paths = RunDir(plan.run_dir).list_journals()
    return select_effective_tasks(task for path in paths for task in _core.scan(str(path), False).tasks)


def keep_found_results(known: KnownResults, tasks: Sequence[CommittedRecords], store: SearchStore) -> None:
    """Keep the results that the run has computed.

    Raises:
        CorruptError: The store, or a journal, is damaged.
        OSError: The store cannot be written.
    """
    old = {(batch.first, batch.last) for batch in known.batches}
    found = (task for task in tasks if (task.first, task.last) not in old and not task.quarantined)
    rows = (_read_result(known, task) for task in found if task.first < task.last <= known.n_records and _is_kept(task))
    while part := list(islice(rows, 100)):
        store.keep_results(known.key, part)


def _is_kept(task: CommittedRecords) -> bool:
    return (
        isinstance(task, _core.TaskRef)
        and len(task.inputs) == 1
        and sum(block.length for block in task.blocks) <= MAX_RESULT_BYTES
    )


def _read_result(known: KnownResults, task: CommittedRecords) -> KeptResult:
    packed = _core.pack(msgspec.msgpack.encode((tuple(task.inputs[0]), _read_blocks(task))))
    first = known.records[task.first * DIGEST_BYTES : (task.first + 1) * DIGEST_BYTES]
    return KeptResult(known.digest_batch(task.first, task.last), first, task.last - task.first, packed)


def _read_blocks(task: CommittedRecords) -> list[tuple[int, bytes, bytes]]:
    with map_blocks(task.blocks) as texts:
        return [(block.stream, block.name, bytes(text)) for block, text in zip(task.blocks, texts, strict=True)]
