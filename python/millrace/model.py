"""The frozen values that travel between the rooms. No behaviour beyond what they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all values: immutable, built by keyword, unknown keys refused."""


class InputArg(Frozen, tag="input", frozen=True):
    """A place in the tool's arguments where the path of input ``index`` stands.

    ``prefix`` is what stands before the path in the same argument (``--in=``). For an input of format ``files``
    the argument becomes one argument per file of the batch.
    """

    index: int
    prefix: str = ""


class OutputArg(Frozen, tag="output", frozen=True):
    """A place in the tool's arguments where the path of output ``index`` stands.

    ``cut`` is the end of the path that does not stand there, as the tool adds it by itself (``.treefile``).
    """

    index: int
    prefix: str = ""
    cut: str = ""


class DatabaseArg(Frozen, tag="database", frozen=True):
    """A place in the arguments of a search in fragments where the path of the database stands.

    In `Fragment.argv` it is the fragment, in `Fragmented.finish` the candidates; ``prefix`` as in `InputArg`.
    """

    prefix: str = ""


class ThreadsArg(Frozen, tag="threads", frozen=True):
    """A place in the tool's arguments where the number of threads of a task stands (`ToolUse.threads`)."""


#: One argument of the tool, in order: literal text, or the place of an input, an output, a fragment or the threads.
Token = str | InputArg | OutputArg | DatabaseArg | ThreadsArg


class Content(Frozen, frozen=True):
    """What a record of FASTA or FASTQ needs to be given to a tool alone; with less it stays with the next that has it.

    For tools that fail on less alone, never end, or write it otherwise than among others.
    """

    #: Letters that count; empty: all residues.
    letters: str = ""
    least: int = 1


class InputUse(Frozen, frozen=True):
    """One input that is cut into records."""

    #: Path as the user typed it; ``-`` is standard input; for ``files``: folder, glob or list joined by NUL.
    path: str
    #: Record format name as in `millrace.formats`, or ``files`` (each file is one record).
    format: str
    #: Whether the tool gets it on its standard input instead of by an `InputArg`.
    stdin: bool = False
    #: Whether it comes through a pipe: some tools tell an empty pipe from an empty file.
    piped: bool = False
    #: Suffixes of companion files (an index, a binary form) that the tool would read instead of the batch.
    hide: tuple[str, ...] = ()
    #: What a batch has at least one record with; None: any record can stand alone.
    content: Content | None = None
    #: Whether the run stops before a record without ``content``: what is written for it depends on neighbours that are not known.
    stops_without_content: bool = False
    #: Where the output depends on which records share a pass of the tool: residues that fill a pass. Each batch is
    #: then a whole number of passes; a pass ends with the record that brings its residues to this number or more, or
    #: with the last record. Residues are the letters and ``*`` of a record's sequence lines.
    #: 0: no record's output depends on its neighbours.
    pass_residues: int = 0
    #: Whether a NUL byte changes what the tool makes of all that follows: the run stops before a batch with one.
    text: bool = False
    #: Residues from which on a record's output would depend on neighbours that are not known: the run stops before it.
    #: 0: no such length.
    too_long: int = 0
    #: The compression in which the tool gets it (see `millrace._core.Reader.compression`), which is that of the input; empty: none. None: the tool gets it unpacked,
    #: whatever the input's is, and writes the same then.
    packed: str | None = None


class OutputUse(Frozen, frozen=True):
    """One output stream of the tool.

    ``layout``: ``file``: one file per task, joined in order by ``join``; ``directory``: the tool writes any number of
    named files into the directory at the `OutputArg`, each kept as it is; ``record``: one file per record (so one
    record per task), placed at ``path`` in which ``{name}`` and ``{stem}`` stand for the input file's.
    """

    #: Short name, unique in the run: ``out``, ``stdout``, ``tblout``... (``millrace gather --stream NAME``).
    name: str
    #: Path as the user typed it; ``-`` is standard output.
    path: str
    #: Where it is written in truth, such as a pipe, whatever the tool says of its path; empty: to ``path``.
    to: str = ""
    #: Whether it is the tool's standard output (else there is an `OutputArg`).
    stdout: bool = False
    layout: str = "file"
    #: Joiner specification: ``name`` or ``name:parameter``, see ``crates/millrace-core/src/join``.
    join: str = "concat"
    #: Regular expressions (bytes, multi-line) of what differs between two serial runs.
    volatile: tuple[str, ...] = ()
    #: Whether a task that succeeds without writing it is fine (the tool writes it only when there is something).
    optional: bool = False


Positive = Annotated[float, msgspec.Meta(gt=0)]


class Learnt(Frozen, frozen=True):
    """What tasks told of their cost: the sums from which `millrace.schedule.sizing.CostModel` finds start and slope."""

    sums: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=5, max_length=5)]
    plain: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=4, max_length=4)]
    shortest: Positive
    largest: Annotated[int, msgspec.Meta(gt=0)]


class CostHint(Frozen, frozen=True):
    """What a tool's time depends on; first guesses, replaced by measurement as soon as there is one."""

    #: ``residues`` (letters of the record), ``bytes`` or ``records``.
    unit: str = "bytes"
    #: Seconds of CPU that one execution costs before its first record.
    startup_seconds: float = 0.01
    #: Units that take about as long as the start; 0: that is not known before the first tasks.
    start_units: int = 0
    #: Cost units that the tool handles per pass over its database; batches below it waste passes. 0: no such thing.
    pass_units: int = 0
    #: Most records per task; 0: no limit.
    max_records: int = 0
    #: Units of the longest record of the input, as far as it was looked at; 0: nothing is known.
    longest: int = 0
    #: Units of the whole input, as far as it was looked at: counted, or estimated from its beginning; 0: nothing is known.
    units: int = 0
    counted: bool = False
    #: Units up to the end of each record, where these are few as well; empty: that is not known.
    ends: tuple[int, ...] = ()
    #: What tasks of the same tool with the same options and databases cost in earlier runs.
    learnt: Learnt | None = None


class Fragment(Frozen, frozen=True):
    """A part of the database: a run of its entries, in their order."""

    #: Ordinals of its entries: [first, last).
    first: int
    last: int
    #: Residues (or what the search's time depends on).
    size: int
    #: Program and arguments that search it; its output ``found`` is read by the backend of `Fragmented.about`.
    argv: tuple[Token, ...]


class Ranked(Frozen, frozen=True):
    """How the rows of one query show in which order its subjects are, so that several tasks may write them.

    Columns are counted from 0, between tabs.
    """

    #: Column with a name of the subject.
    subject: int
    #: Column with the bits, which alone decide the order of subjects that differ in them and not in the E-value.
    bits: int
    #: Column with the E-value, where it does not follow from the bits alone.
    evalue: int | None
    #: Candidates up to which the search keeps them all.
    most: int
    #: Program and arguments of the search that tells the E-values of the user's own search; empty: bits are enough, and
    #: fragments tell these.
    argv: tuple[Token, ...] = ()


class Fetched(Frozen, frozen=True):
    """A file that was behind a URL, as it is seen in the folder of a `View`."""

    #: Without folders.
    name: str
    #: Where it comes from, as everybody may see it.
    place: str
    #: Name of its copy in the cache of a node; tells the version.
    key: str
    size: int
    #: What its server calls the version of these bytes.
    version: str
    mtime_ns: int
    #: Offset of its first byte in the file there, of which it is a piece; None: it is the whole.
    first: int | None = None

    @property
    def is_piece(self) -> bool:
        """Whether it is a piece of the file there."""
        return self.first is not None

    @property
    def extent(self) -> tuple[int, int]:
        """Its bytes in the file there, half-open."""
        return self.first or 0, (self.first or 0) + self.size


class HdfsRead(Frozen, frozen=True):
    """Bytes that nodes have read from HDFS."""

    #: Of volumes as a whole.
    volumes: int = 0
    #: Of parts of volumes, for searches of candidates.
    ranges: int = 0
    #: Those of both that came from DataNodes of other hosts.
    far: int = 0

    def __add__(self, other: HdfsRead) -> HdfsRead:
        return HdfsRead(self.volumes + other.volumes, self.ranges + other.ranges, self.far + other.far)


class BlastDatabase(Frozen, tag="blast", frozen=True):
    """A database in NCBI's format, as `millrace.tools.blast.backend` searches it in fragments."""

    #: ``p`` or ``n``.
    letter: str
    #: As the user names it: paths without suffix.
    databases: tuple[str, ...]
    title: str
    #: Of the whole database, as BLAST prints them.
    entries: int
    residues: int
    #: Entries and residues that go into its statistics.
    counted: tuple[int, int]
    #: Path without suffix, and entries, of each volume.
    volumes: tuple[tuple[str, int], ...]
    #: Subjects of one query in one fragment from which on its list may not have all.
    limit: int
    #: What the list of the search leaves of the entries, by `millrace.tools.blast.lists.pack`; empty: there is no list.
    listed: str = ""
    #: Length of the shortest entry that the list leaves.
    shortest: int = 0
    #: Folder in which ``partN`` has the volume of fragment N, from 0, whole; empty: all volumes are whole where they are.
    parts: str = ""


class HmmerTargets(Frozen, tag="hmmer", frozen=True):
    """What HMMER searches, as `millrace.tools.hmmer.backend` does in fragments."""

    #: File of sequences, or of profiles without the suffixes of the pressed ones.
    source: str
    #: Whether they are pressed profiles.
    profiles: bool = False
    #: Index of the output with the report, which has statistics of all targets; None: the user does not want it.
    report: int | None = None
    #: Offsets in the file at which fragments begin, and its size; empty: they are not told.
    starts: tuple[int, ...] = ()
    #: Folder in which ``partN`` has the piece of the file that fragment N is, from 0; empty: the file is whole.
    parts: str = ""
    #: Folder with the places of all names, which the coordinator makes; empty: each node makes its own.
    names: str = ""


class Index(Frozen, frozen=True):
    """A file of a volume that says where its entries are, or what they are called: of others searches read little."""

    file: Fetched
    #: Offset and bytes of what they read, by zlib; all else is zeros.
    pieces: tuple[tuple[int, bytes], ...]
    #: Whether that is so in the file, too; else it is less than there is.
    is_part: bool = True


class Carried(Frozen, frozen=True):
    """A file that all nodes need, so small when it is packed that it goes with what they are told."""

    #: Without folders.
    name: str
    #: By zlib.
    packed: bytes


class Fragmented(Frozen, frozen=True):
    """How a batch is searched in fragments of the database, with the bytes of the search of the whole.

    First each fragment is searched with the statistics of the whole database, for *candidates* only: all entries
    that the search of the whole could report (and perhaps more). Then the tool itself, with the user's own options,
    searches the batch in the candidates alone, again with the statistics of the whole; what it writes is the result.
    So every format is exact that is exact for batches, and no result is ever parsed, merged or formatted by us.
    """

    fragments: tuple[Fragment, ...]
    #: Output of the search of one fragment.
    found: OutputUse
    #: Program and arguments of the search in the candidates: those of `ToolUse.argv` with `DatabaseArg`.
    finish: tuple[Token, ...]
    #: Name of the database as the tool shall print it.
    database: str
    #: Whether the candidates of a batch may be searched for some of its queries at a time.
    divisible: bool = False
    #: How the candidates of one query may be searched in slices; None: not at all.
    ranked: Ranked | None = None
    #: What is searched, whose type says who makes fragments and candidates: `millrace.tools.backend`. None: nobody, as
    #: nothing is searched in truth (simulations).
    about: BlastDatabase | HmmerTargets | None = None
    #: Files, or pieces of files, that the search of each fragment reads, and that a node fetches when it first searches it;
    #: empty: all files of the database are there.
    volumes: tuple[tuple[Fetched, ...], ...] = ()
    #: Index and ids of each of them, or the file that they are pieces of: what the coordinator has, and another node fetches
    #: as far as it needs it.
    indices: tuple[Index, ...] = ()
    #: Small files of the database, which no node fetches.
    carried: tuple[Carried, ...] = ()


#: A tool that only computes and has done nothing for so long will never do anything again.
STANDSTILL_SECONDS = 60.0


class Served(Frozen, frozen=True):
    """How the records of a program are told apart that stays alive and takes them one by one (``docs/records.md``).

    Both expressions are for format ``regex`` alone.
    """

    record_start: str = ""
    record_end: str = ""


class ToolUse(Frozen, frozen=True):
    """What an adapter understood of one command: all that the engine needs to know of a tool."""

    #: Adapter name: ``blast``, ``hmmer``... or ``generic``.
    adapter: str
    argv: tuple[Token, ...]
    inputs: tuple[InputUse, ...]
    outputs: tuple[OutputUse, ...]
    #: Files of the databases and other big shared inputs; a change of any makes a resume refuse.
    databases: tuple[Path, ...] = ()
    #: Those of them of which no more is known than that the command of an unknown program names them.
    named: tuple[Path, ...] = ()
    #: Threads that one task keeps busy. 0, from an adapter: as many as it gets, so few tasks with many threads each are
    #: best; the plan says how many these are.
    threads: int = 1
    #: Environment variables added for the tool.
    env: dict[str, str] = {}
    cost: CostHint = CostHint()
    #: Exit statuses of the tool that say "not the record's fault" (bad option, missing database).
    fatal_statuses: tuple[int, ...] = ()
    #: Exit statuses besides 0 with which the tool ends well ("nothing found").
    ok_statuses: tuple[int, ...] = ()
    #: Regular expression (bytes, multi-line) on the tool's standard error whose group 1 is the number of records that
    #: it handled; if set, a task has failed unless the last match says its batch's number. For tools that lose
    #: records with exit status 0.
    records_said: str = ""
    #: Regular expressions (bytes, multi-line); standard error that matches one means failure whatever the exit status.
    failures_said: tuple[str, ...] = ()
    #: Seconds after which a task that used no CPU time and read or wrote nothing is ended and tried again; None: never, as
    #: for all that may wait for somebody else or for a time.
    still_seconds: float | None = None
    #: Version line of the tool, as it prints it; empty if unknown.
    version: str = ""
    #: Versions, as they stand in that line, for which the adapter's rules were compared with serial runs. Empty: the
    #: adapter does not tell them apart.
    tested: tuple[str, ...] = ()
    #: Whether it has more options than were compared, so that parts of each input are looked at as if it were not known.
    is_doubtful: bool = False
    #: The program stays alive from task to task; None: it is started for each.
    served: Served | None = None
    #: Tasks may run in forks of a tool that waits where it first touches its input.
    warm: bool = False
    #: How the database is searched in fragments; None: as a whole.
    fragmented: Fragmented | None = None
    #: Decisions with their reason in words, for ``millrace plan``.
    notes: tuple[str, ...] = ()

    @property
    def n_fragments(self) -> int:
        """Fragments of the database; 0: it is searched as a whole."""
        return len(self.fragmented.fragments) if self.fragmented else 0


class View(Frozen, frozen=True):
    """The working directory as the tool is to see it: with files in it that are behind URLs.

    The command with the names of these files is the one whose output is written.
    """

    #: Has links to all that is in the working directory and above it, and to the copies; the same path on each node.
    root: Path
    #: The folder in it that stands for the working directory.
    folder: Path
    files: tuple[Fetched, ...]
    #: As in `Command`, with names in the place of URLs.
    argv: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    #: What each node fetches for itself when it needs it, into the place that ``stage`` names as in `millrace.job.Job`.
    later: tuple[Fetched, ...] = ()
    stage: str = "auto"
    #: Names of those of ``files`` of which other nodes than the coordinator's may fetch the pieces that they search, and
    #: of how many blocks each is.
    in_pieces: dict[str, int] = {}

    def file(self, path: Path) -> Fetched | None:
        """The fetched file at a path in it; None if it is none of these."""
        return next((file for file in self.files if path == self.folder / file.name), None)


class Command(Frozen, frozen=True):
    """The command as the user typed it after ``--``, with its surroundings."""

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
    #: Inputs that another phase of the job still writes: files, and folders of files, without ``./`` and ``/`` at the end.
    growing: frozenset[str] = frozenset()
    #: Where files behind URLs of the command are to be read; None: it names none.
    view: View | None = None
    #: ``--as`` of the user: the known tool that the program is; empty: the one whose name it bears.
    known_as: str = ""

    @property
    def tool(self) -> str:
        """The name of the tool that the program is, by which adapters know it."""
        return self.known_as or os.path.basename(self.argv[0])

    @property
    def seen(self) -> Command:
        """The command that the tool gets, where its files can be read."""
        if not (view := self.view):
            return self
        return msgspec.structs.replace(self, argv=view.argv, cwd=view.folder, inputs=view.inputs, shared=view.shared)


class Snapshot(Frozen, frozen=True):
    """Where a run is, for whoever shows it. Times in seconds."""

    elapsed: float
    slots: int
    slots_busy: int
    records_done: int
    #: Cost units done (residues, bytes or records: ``unit``).
    units_done: int
    unit: str
    #: Bytes of the input read by the batches done so far, and in all (None: a pipe, not known).
    bytes_done: int
    bytes_total: int | None
    #: Records that an earlier run had committed (counted in ``records_done`` too).
    records_resumed: int = 0
    retries: int = 0
    quarantined: int = 0
    #: Seconds of CPU that the tool has used.
    cpu: float = 0.0
    #: Estimated seconds to the end, as (low, likely, high); None while nothing is known.
    eta: tuple[float, float, float] | None = None
