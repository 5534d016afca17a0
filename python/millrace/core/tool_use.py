"""Immutable values that several layers share: tools, commands, databases, snapshots. No behaviour."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec


class FrozenValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all values: immutable, built by keyword, unknown keys refused."""


class InputArg(FrozenValue, tag="input", frozen=True):
    """The place of the path of input ``index`` in the tool's arguments.

    ``prefix`` is the text before the path in the same argument (``--in=``). For an input of format ``files``
    the argument becomes one argument per file of the batch.
    """

    index: int
    prefix: str = ""


class OutputArg(FrozenValue, tag="output", frozen=True):
    """The place of the path of output ``index`` in the tool's arguments.

    ``cut`` is the end of the path that is missing there, as the tool adds it by itself (``.treefile``).
    """

    index: int
    prefix: str = ""
    cut: str = ""


class DatabaseArg(FrozenValue, tag="database", frozen=True):
    """The place of the path of the database in the arguments of a search in fragments.

    In ``DatabaseFragment.argv`` it is the fragment, in ``FragmentPlan.finish`` the candidates, in ``ToolUse.argv`` the
    ``PreparedDatabase``; ``prefix`` as in ``InputArg``.
    """

    prefix: str = ""


class ThreadsArg(FrozenValue, tag="threads", frozen=True):
    """The place of the number of threads of a task in the tool's arguments (``ToolUse.threads``)."""


class ScratchArg(FrozenValue, tag="scratch", frozen=True):
    """The place of the path of an empty folder for the tool's own files, which is removed when the task ends."""

    #: The folder that the user typed.
    typed: str


#: One argument of the tool: literal text, or the place of an input, an output, a database, the threads or the scratch folder.
ArgumentToken = str | InputArg | OutputArg | DatabaseArg | ThreadsArg | ScratchArg


class RequiredContent(FrozenValue, frozen=True):
    """The minimum content of a FASTA or FASTQ record that can be given to a tool alone.

    A record with less stays with the next record that has it. For tools that fail on less alone, never end, or write
    other output for it than among others.
    """

    #: Letters that count; empty: all residues.
    letters: str = ""
    least: int = 1


class InputUse(FrozenValue, frozen=True):
    """One input that is cut into records."""

    #: Path as the user typed it; ``-`` is standard input; for ``files``: folder, glob or list joined by NUL.
    path: str
    #: Record format name as in ``millrace.core.record_formats``, or ``files`` (each file is one record).
    format: str
    #: Whether the tool reads it from standard input instead of through an ``InputArg``.
    stdin: bool = False
    #: Whether it comes through a pipe: some tools distinguish an empty pipe from an empty file.
    piped: bool = False
    #: Suffixes of companion files (an index, a binary form) that the tool would read instead of the batch.
    hide: tuple[str, ...] = ()
    #: Content that at least one record of each batch must have; None: any record can stand alone.
    content: RequiredContent | None = None
    #: Whether the run stops before a record without ``content``, as its output depends on unknown neighbours.
    stops_without_content: bool = False
    #: If the output depends on which records share a pass of the tool: residues that fill a pass. Each batch is then a
    #: whole number of passes; a pass ends with the record that brings its residues to this number or more, or with the
    #: last record. Residues are the letters and ``*`` of a record's sequence lines. 0: no record's output depends on
    #: its neighbours.
    pass_residues: int = 0
    #: Whether a NUL byte changes how the tool reads all that follows: the run stops before a batch with one.
    text: bool = False
    #: From this number of residues on, a record's output would depend on unknown neighbours: the run stops before it.
    #: 0: no limit.
    too_long: int = 0
    #: Number of parts into which the records are dealt by turns before they are cut into batches: first all of part 0 (records
    #: 0, N, 2N...), then part 1... For a tool whose serial output has this order. 0: the order is that of the input.
    dealt: int = 0
    #: Compression in which the tool reads it, the same as that of the input (see
    #: ``millrace._core.Reader.compression``); empty: none. None: the tool reads it uncompressed, whatever the input's
    #: compression is, and writes the same then.
    packed: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths in ``path``: several only for ``files``."""
        return tuple(self.path.split("\0"))


class OutputUse(FrozenValue, frozen=True):
    """One output stream of the tool.

    ``layout``: ``file``: one file per task, joined in order by ``join``; ``directory``: the tool writes any number of
    named files into the directory at the ``OutputArg``, each kept as it is; ``record``: one file per record (so one
    record per task), placed at ``path`` in which ``{name}`` and ``{stem}`` stand for the input file's.
    """

    #: Short name, unique in the run: ``out``, ``stdout``, ``tblout``... (``millrace gather --stream NAME``).
    name: str
    #: Path as the user typed it; ``-`` is standard output.
    path: str
    #: Where it is really written, such as a pipe, whatever path the tool is given; empty: to ``path``.
    to: str = ""
    #: Where it grows until it is whole, and gets its name; empty: at ``path``.
    part: str = ""
    #: Whether it is the tool's standard output (else there is an ``OutputArg``).
    stdout: bool = False
    layout: str = "file"
    #: Joiner specification: ``name`` or ``name:parameter``, see ``crates/millrace-core/src/join``.
    join: str = "concat"
    #: Regular expressions (bytes, multi-line) for text that differs between two serial runs.
    volatile: tuple[str, ...] = ()
    #: Whether a successful task may leave it unwritten (the tool writes it only when there is content).
    optional: bool = False


PositiveFloat = Annotated[float, msgspec.Meta(gt=0)]


class CostSums(FrozenValue, frozen=True):
    """Measured costs of tasks: the sums from which ``millrace.scheduler.batch_sizing.CostModel`` computes start and slope."""

    sums: Annotated[tuple[PositiveFloat, ...], msgspec.Meta(min_length=5, max_length=5)]
    plain: Annotated[tuple[PositiveFloat, ...], msgspec.Meta(min_length=4, max_length=4)]
    shortest: PositiveFloat
    largest: Annotated[int, msgspec.Meta(gt=0)]


class CostHint(FrozenValue, frozen=True):
    """Dependence of a tool's time on its input; first guesses, replaced by measurements as soon as there are any."""

    #: ``residues`` (letters of the record), ``bytes`` or ``records``.
    unit: str = "bytes"
    #: CPU seconds of one execution before its first record.
    startup_seconds: float = 0.01
    #: Units that take about as long as the start; 0: not known before the first tasks.
    start_units: int = 0
    #: Cost units that the tool handles per pass over its database; smaller batches waste passes. 0: no passes.
    pass_units: int = 0
    #: Maximum number of records per task; 0: no limit.
    max_records: int = 0
    #: Units of the longest record in the part of the input that was read; 0: unknown.
    longest: int = 0
    #: Units of the whole input: counted, or estimated from its beginning; 0: unknown.
    units: int = 0
    counted: bool = False
    #: Units up to the end of each record, if these are few as well; empty: unknown.
    ends: tuple[int, ...] = ()
    #: How many times the mean a record may take of whose time its units say little; 1: they say it.
    spread: float = 1.0
    #: Measured costs of the same tool with the same options and databases in earlier runs.
    learnt: CostSums | None = None


class DatabaseFragment(FrozenValue, frozen=True):
    """A part of the database: a run of its entries, in their order."""

    #: Ordinals of its entries: ``[first, last)``.
    first: int
    last: int
    #: Residues (or another measure on which the search's time depends).
    size: int
    #: Program and arguments of its search; the backend of ``FragmentPlan.about`` reads its output ``found``.
    argv: tuple[ArgumentToken, ...]
    #: The entries of that run that it has, by ``millrace.core.entry_ranges.pack_ranges``; empty: all.
    only: str = ""


class RankColumns(FrozenValue, frozen=True):
    """Columns of a query's rows that give the order of its subjects, so that several tasks may write them.

    Columns are counted from 0, between tabs.
    """

    #: Column with a name of the subject.
    subject: int
    #: Column with the bits, which alone order subjects that differ in them and not in the E-value.
    bits: int
    #: Column with the E-value; None: it follows from the bits alone.
    evalue: int | None
    #: Maximum number of candidates that the search keeps all.
    most: int
    #: Program and arguments of the search that gives the E-values of the user's own search; empty: the bits, which the
    #: fragments give, are enough.
    argv: tuple[ArgumentToken, ...] = ()


class FetchedFile(FrozenValue, frozen=True):
    """A file behind a URL, as it is seen in the folder of a ``RemoteFileView``."""

    #: File name without folders.
    name: str
    #: Its URL without secrets.
    place: str
    #: Name of its copy in the cache of a node; it identifies the version.
    key: str
    size: int
    #: Version of these bytes, as the server names it.
    version: str
    mtime_ns: int
    #: Offset of its first byte in the remote file, if it is a piece of it; None: it is the whole file.
    first: int | None = None

    @property
    def is_piece(self) -> bool:
        """Whether it is a piece of the remote file."""
        return self.first is not None

    @property
    def extent(self) -> tuple[int, int]:
        """Its bytes in the remote file, half-open."""
        return self.first or 0, (self.first or 0) + self.size


class InputRange(FrozenValue, frozen=True, array_like=True):
    """The bytes ``[first, last)`` of an input in HDFS, which are whole records."""

    file: FetchedFile
    first: int
    last: int
    #: The piece that they are of, from 1.
    piece: int


class StorageRead(FrozenValue, frozen=True):
    """Bytes that nodes have read from HDFS, or from other shared storage."""

    #: Bytes of whole volumes.
    volumes: int = 0
    #: Bytes of parts of volumes, for searches of candidates.
    ranges: int = 0
    #: Part of both that came from DataNodes of other hosts.
    far: int = 0

    def __add__(self, other: StorageRead) -> StorageRead:
        return StorageRead(self.volumes + other.volumes, self.ranges + other.ranges, self.far + other.far)


class BlastDatabase(FrozenValue, tag="blast", frozen=True):
    """A database in NCBI's format, as ``millrace.adapters.blast.backend`` searches it in fragments."""

    #: ``p`` or ``n``.
    letter: str
    #: Paths without suffix, as the user names them.
    databases: tuple[str, ...]
    title: str
    #: Entries and residues of the whole database, as BLAST prints them.
    entries: int
    residues: int
    #: Entries and residues that its statistics count.
    counted: tuple[int, int]
    #: Path without suffix, and entries, of each volume.
    volumes: tuple[tuple[str, int], ...]
    #: From this number of subjects of one query in one fragment on, its list may be incomplete.
    limit: int
    #: The entries that the search's list leaves, by ``millrace.core.entry_ranges.pack_ranges``; empty: there is no list.
    listed: str = ""
    #: Length of the shortest entry that the list leaves.
    shortest: int = 0
    #: Folder in which ``partN`` has the whole volume of fragment N, from 0; empty: all volumes are whole in their
    #: place.
    parts: str = ""


class HmmerTargets(FrozenValue, tag="hmmer", frozen=True):
    """The targets of HMMER, as ``millrace.adapters.hmmer.backend`` searches them in fragments."""

    #: File of sequences, or of profiles without the suffixes of the pressed ones.
    source: str
    #: Whether they are pressed profiles.
    profiles: bool = False
    #: Index of the output with the report, which has statistics of all targets; None: the user wants none.
    report: int | None = None
    #: Offsets in the file at which fragments begin, and its size; empty: not known.
    starts: tuple[int, ...] = ()
    #: Folder in which ``partN`` has the piece of the file that fragment N is, from 0; empty: the file is whole.
    parts: str = ""
    #: Folder with the positions of all names, which the coordinator makes; empty: each node makes its own.
    names: str = ""
    #: Whether the finish searches the candidates alone; else it searches all targets, of which the others are fillers.
    alone: bool = False
    #: Option that is added to the finish; empty: none.
    added: str = ""
    #: Indexes of the tables that show this option.
    tables: tuple[int, ...] = ()


class VolumeIndex(FrozenValue, frozen=True):
    """A file of a volume with the positions or names of its entries; searches of other volumes read little of it."""

    file: FetchedFile
    #: Offset and bytes of the parts that they read, by zlib; the rest is zeros.
    pieces: tuple[tuple[int, bytes], ...]
    #: Whether the rest is zeros in the file, too; else the file is shorter.
    is_part: bool = True


class InlineFile(FrozenValue, frozen=True):
    """A small file that all nodes need: compressed, it travels inside their messages."""

    #: File name without folders.
    name: str
    #: Its content, by zlib.
    packed: bytes


class VolumeKeeping(FrozenValue, frozen=True):
    """Where nodes keep volumes that they fetch, and how many nodes keep each."""

    #: Maximum number of nodes that fetch a volume; 0: any number. None: as many as have memory for all of them.
    max_copies: int | None = 0
    #: Share of the volumes that a node keeps.
    share: float = 1.0
    #: As in ``RemoteFileView``.
    stage: str = "auto"
    #: Paths, by name, of the files of the database that are read in place, on storage that all nodes mount; empty:
    #: the database is behind a URL.
    in_place: dict[str, str] = {}


class FragmentPlan(FrozenValue, frozen=True):
    """Plan to search batches in fragments of the database, with the bytes of the search of the whole.

    First each fragment is searched with the statistics of the whole database, for *candidates* only: all entries that
    the search of the whole could report (and perhaps more). Then the tool itself, with the user's own options, searches
    the batch in the candidates alone, again with the statistics of the whole; its output is the result. So every format
    is exact that is exact for batches, and no result is ever parsed, merged or formatted by us.
    """

    fragments: tuple[DatabaseFragment, ...]
    #: Output of the search of one fragment.
    found: OutputUse
    #: Program and arguments of the search in the candidates: those of ``ToolUse.argv`` with ``DatabaseArg``.
    finish: tuple[ArgumentToken, ...]
    #: Name of the database for the tool to print.
    database: str
    #: Whether the candidates of a batch may be searched for some of its queries at a time.
    divisible: bool = False
    #: How the candidates of one query may be searched in slices; None: no slices.
    ranked: RankColumns | None = None
    #: The database, whose type selects the backend for fragments and candidates: ``millrace.adapters.database_backend``. None:
    #: nothing is really searched (simulations).
    about: BlastDatabase | HmmerTargets | None = None
    #: Files, or pieces of files, that the search of each fragment reads, and that a node fetches before its first
    #: search of it; empty: all files of the database are local.
    volumes: tuple[tuple[FetchedFile, ...], ...] = ()
    kept: VolumeKeeping = VolumeKeeping()
    #: Index and ids of each volume, or the file of which they are pieces: the coordinator has it, and another node
    #: fetches as much as it needs.
    indices: tuple[VolumeIndex, ...] = ()
    #: Small files of the database, which no node fetches.
    carried: tuple[InlineFile, ...] = ()
    #: Module whose ``BACKEND`` makes fragments and candidates; empty: that of ``about``.
    backend: str = ""
    #: Whether only batches that could end last are searched in fragments, and all others in the whole database.
    is_for_tail: bool = False
    #: Depth down to which the fragments are searched for candidates that are kept (``ReusableSearch``); 0: none are.
    depth: float = 0.0


#: A tool that only computes, and has made no progress for this long, will never make any.
STANDSTILL_SECONDS = 60.0


class PreparedDatabase(FrozenValue, frozen=True):
    """A database that each node makes from the user's file before its first task, for the ``DatabaseArg`` of all its tasks."""

    #: Path of the user's file as typed.
    typed: str
    #: Arguments of the runs of the tool that make it, one after another; threads are those of all slots.
    steps: tuple[tuple[ArgumentToken, ...], ...]
    #: Estimate of its bytes.
    size_bytes: int


class RecordProtocol(FrozenValue, frozen=True):
    """Record boundaries of a program that stays alive and takes records one by one (``docs/records.md``).

    Both expressions are for format ``regex`` alone.
    """

    record_start: str = ""
    record_end: str = ""


class ToolUse(FrozenValue, frozen=True):
    """An adapter's interpretation of one command: all that the engine needs to know of a tool."""

    #: Adapter name: ``blast``, ``hmmer``... or ``generic``.
    adapter: str
    argv: tuple[ArgumentToken, ...]
    inputs: tuple[InputUse, ...]
    outputs: tuple[OutputUse, ...]
    #: Files of the databases and other big shared inputs; a resume is refused if any has changed.
    databases: tuple[Path, ...] = ()
    #: Those of them known only because the command of an unknown program names them.
    named: tuple[Path, ...] = ()
    #: Threads that one task keeps busy. 0, from an adapter: as many as it gets, so few tasks with many threads each are
    #: best; the plan sets the number.
    threads: int = 1
    #: Environment variables added for the tool.
    env: dict[str, str] = {}
    cost: CostHint = CostHint()
    #: Exit statuses of the tool that say "not the record's fault" (bad option, missing database).
    fatal_statuses: tuple[int, ...] = ()
    #: Exit statuses besides 0 that mean success ("nothing found").
    ok_statuses: tuple[int, ...] = ()
    #: Regular expression (bytes, multi-line) on the tool's standard error whose group 1 is the number of records that
    #: it handled; if set, a task has failed unless the last match is its batch's number. For tools that lose records
    #: with exit status 0.
    records_said: str = ""
    #: Regular expressions (bytes, multi-line); standard error that matches one means failure whatever the exit status.
    failures_said: tuple[str, ...] = ()
    #: A task that used no CPU time and read or wrote nothing for this many seconds is killed and retried; None: never,
    #: as for a tool that may wait for a server or a time.
    still_seconds: float | None = None
    #: Version line of the tool, as it prints it; empty: unknown.
    version: str = ""
    #: Versions in that line for which the adapter's rules were compared with serial runs. Empty: the adapter does not
    #: distinguish versions.
    tested: tuple[str, ...] = ()
    #: Whether it has options beyond those compared, so that parts of each input are verified as for an unknown tool.
    is_doubtful: bool = False
    #: The program stays alive from task to task; None: it is started for each.
    served: RecordProtocol | None = None
    #: Tasks may run in forks of a tool that waits before it first reads its input.
    warm: bool = False
    #: Suffix of the file that the tool opens and reads again from its start for each record, which is kept open for it
    #: where that is possible; empty: none.
    reread_suffix: str = ""
    #: How the database is searched in fragments; None: it is searched as a whole.
    fragmented: FragmentPlan | None = None
    #: The database that each node makes for its tasks; None: they read the user's own.
    prepared: PreparedDatabase | None = None
    #: Decisions with their reason in words, for ``millrace plan``.
    notes: tuple[str, ...] = ()

    @property
    def max_copies(self) -> int:
        """Maximum number of nodes that fetch each volume of the database; 0: any number, or there are none."""
        return (self.fragmented.kept.max_copies or 0) if self.fragmented and self.fragmented.volumes else 0

    @property
    def n_fragments(self) -> int:
        """Number of fragments of the database; 0: it is searched as a whole."""
        return len(self.fragmented.fragments) if self.fragmented else 0


class RemoteFileView(FrozenValue, frozen=True):
    """The working directory as the tool sees it: with the files that are behind URLs.

    The output is that of the command with the names of these files.
    """

    #: Has links to all entries of the working directory and above it, and to the copies; the same path on each node.
    root: Path
    #: The folder in it that stands for the working directory.
    folder: Path
    files: tuple[FetchedFile, ...]
    #: As in ``UserCommand``, with names in the place of URLs.
    argv: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    #: Files that each node fetches when it needs them, into the place that ``stage`` names as in ``millrace.core.job.JobSpec``.
    later: tuple[FetchedFile, ...] = ()
    stage: str = "auto"
    #: Names of those ``files`` of which nodes other than the coordinator's may fetch only the pieces that they search,
    #: with their numbers of blocks.
    in_pieces: dict[str, int] = {}
    #: The input that nodes cut into records where its bytes lie, its block size, and its first bytes; the folder has a
    #: file of its size that begins with them.
    cut_by_nodes: FetchedFile | None = None
    block_bytes: int = 0
    head: bytes = b""

    def find_hdfs_input(self, path: Path) -> FetchedFile | None:
        """Return the file in HDFS that ``path`` stands for, fetched or to be cut by nodes; None if it is no such file."""
        files = (*self.files, *filter(None, [self.cut_by_nodes]))
        return next(
            (file for file in files if path == self.folder / file.name and file.place.startswith("hdfs://")), None
        )

    def find_file(self, path: Path) -> FetchedFile | None:
        """Return the fetched file at ``path``; None if there is none."""
        return next((file for file in self.files if path == self.folder / file.name), None)


class UserCommand(FrozenValue, frozen=True):
    """The command as the user typed it after ``--``, with its environment."""

    argv: tuple[str, ...]
    #: Working directory, absolute.
    cwd: Path
    environ: dict[str, str]
    #: Absolute path of the program.
    exe: Path
    #: ``--input FILE[:FORMAT]`` of the user, in order.
    inputs: tuple[str, ...] = ()
    #: ``--output FILE`` of the user, in order.
    outputs: tuple[str, ...] = ()
    #: ``--join [OUTPUT=]HOW`` of the user.
    joins: tuple[str, ...] = ()
    #: ``--shared FILE`` of the user.
    shared: tuple[str, ...] = ()
    #: ``--ok-status N`` of the user.
    ok_statuses: tuple[int, ...] = ()
    #: ``--format`` of the user for inputs that name none; empty: detect.
    format: str = ""
    #: ``--records`` of the user: the program takes records one by one.
    records: bool = False
    #: Whether standard input is a file or a pipe (not a terminal, not closed, not /dev/null).
    stdin_is_data: bool = False
    #: Inputs that another phase of the job still writes: files, and folders of files, without ``./`` and ``/`` at the
    #: end.
    growing: frozenset[str] = frozenset()
    #: View with the files behind URLs of the command; None: it names no URLs.
    view: RemoteFileView | None = None
    #: ``--as`` of the user: the known tool that the program is; empty: the one with its name.
    known_as: str = ""

    @property
    def tool(self) -> str:
        """The name of the tool by which adapters know it."""
        return self.known_as or os.path.basename(self.argv[0])

    @property
    def resolved_command(self) -> UserCommand:
        """The command for the tool, with paths at which its files can be read."""
        if not (view := self.view):
            return self
        return msgspec.structs.replace(self, argv=view.argv, cwd=view.folder, inputs=view.inputs, shared=view.shared)


class ProgressSnapshot(FrozenValue, frozen=True):
    """Progress of a run at one time. Times in seconds."""

    elapsed: float
    slots: int
    slots_busy: int
    records_done: int
    #: Cost units done (residues, bytes or records: ``unit``).
    units_done: int
    unit: str
    #: Bytes of the input read by the batches done so far, and in all (None: unknown, as of a pipe).
    bytes_done: int
    bytes_total: int | None
    #: Records that an earlier run had committed (counted in ``records_done`` too).
    records_resumed: int = 0
    retries: int = 0
    quarantined: int = 0
    #: CPU seconds that the tool has used.
    cpu: float = 0.0
    #: Estimated seconds to the end, as (low, likely, high); None: unknown.
    eta: tuple[float, float, float] | None = None
