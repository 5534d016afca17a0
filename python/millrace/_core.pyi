"""What `crates/millrace-py` offers to Python."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import ClassVar, Self, TypeAlias, final

from typing_extensions import disjoint_base

__version__: str

def join(spec: str, blocks: list[tuple[int, bytes]]) -> bytes:
    """Join the blocks (n_records, bytes) of one output stream, in input order, by the rule ``spec``."""

def patch(kind: str, side: bytes, block: bytes) -> bytes:
    """Put right what the search of candidates could not know of the whole database: the patch ``kind``."""

def sequence_marks(path: str | PathLike[str], most: int) -> list[tuple[int, int, int]]:
    """(sequences, residues, bytes) of a FASTA file up to about ``most`` evenly spread places, the last one its end.

    Raises:
        ValueError: It is not sure that HMMER reads the same sequences.
    """

def profile_nodes(path: str | PathLike[str]) -> list[int]:
    """Nodes of each profile in a pressed file ``.h3f``.

    Raises:
        ValueError: It is laid out in another way.
    """

def prepare_targets(
    path: str | PathLike[str],
    cuts: list[int],
    folder: str | PathLike[str],
    new: Sequence[tuple[int, int]] | None = None,
    *,
    pressed: bool,
) -> None:
    """Write the places of all names, and of sequences ``starts.ssi``; of pressed profiles a database ``fragment-N`` for each cut.

    Args:
        path: A FASTA file, or a pressed database without suffix.
        cuts: First ordinals, and the number of all targets.
        new: Ranges of those that are searched by themselves, while what is known of the others is known by ordinal: these are
            written to ``new.fasta``, or to one more pressed database; None: nothing is known.
    """

def target_digests(path: str | PathLike[str], *, pressed: bool) -> bytes:
    """Digests of all targets of HMMER: of the residues of sequences, or of pressed profiles without names and descriptions.

    Each of several copies has a digest of its own.

    Raises:
        ValueError: The file is not understood.
    """

def profile_widths(path: str | PathLike[str]) -> tuple[int, int]:
    """Lengths of the longest name and the longest accession of a pressed profile database.

    Raises:
        ValueError: It is laid out in another way.
    """

def profiles_without_cutoff(path: str | PathLike[str], cutoff: int) -> list[str]:
    """Names of the profiles in a pressed database that have not the cutoff of that number: 0 and 1 are GA, 2 and 3 TC, 4 and 5 NC.

    Raises:
        ValueError: It is laid out in another way.
    """

@final
class TargetNames:
    """The names of all targets of HMMER."""

    def __new__(cls, path: str | PathLike[str], *, pressed: bool) -> Self:
        """Read the names.

        Raises:
            ValueError: The file is not understood.
        """

    def find_queries(self, text: bytes) -> list[tuple[list[int] | None, list[int]]]:
        """Ordinals of the targets that each query has found, and its six counts of the pipeline, empty if not known.

        ``text`` is a report, or what is known from earlier searches. None: a name is that of several targets, or of none.

        Raises:
            ValueError: It is not understood.
        """

@final
class PreparedTargets:
    """A target database of HMMER that was prepared; ``n_new``: number of the targets that are searched by themselves."""

    def __new__(
        cls, path: str | PathLike[str], prepared: str | PathLike[str], cuts: list[int], n_new: int = 0
    ) -> Self: ...
    def write_sequences(
        self, found: Sequence[bytes | memoryview], dest: str | PathLike[str], side: str | PathLike[str]
    ) -> None:
        """Write the FASTA file ``dest`` in which all but the candidates have no residues.

        ``found`` are the reports of all fragments; ``side`` gets the sums of what the pipeline counted, if it is known.

        Raises:
            ValueError: A report that is not understood, or of other targets.
        """

    def list_ranges(self, found: Sequence[bytes | memoryview], side: str | PathLike[str]) -> list[tuple[int, int]]:
        """Half-open ranges of the FASTA file that hold the candidates, as ``write_sequences`` reads them.

        Raises:
            ValueError: A report is not understood.
        """

    def write_profiles(
        self, found: Sequence[bytes | memoryview], dest: str | PathLike[str], side: str | PathLike[str], *, alone: bool
    ) -> None:
        """As ``write_sequences``, for pressed profiles; all but the candidates never pass the first filter.

        If the candidates are ``alone``, there is only one such profile, before them.
        """

class DiskFull(OSError):
    """No space left, or a quota is exhausted."""

class RecordError(Exception):
    """An input whose bytes are not what they should be, such as a gzip file that is cut off."""

    #: The source as it was named.
    source: str
    #: Ordinal of the record over all sources, from 1.
    record: int
    #: Line in the source, from 1; None where lines are not counted.
    line: int | None

@final
class Batch:
    """A run of consecutive whole records."""

    @property
    def records(self) -> int:
        """Number of records."""
    @property
    def header(self) -> int:
        """Bytes of the header before them."""
    @property
    def bytes(self) -> int:
        """Their bytes."""
    @property
    def cost(self) -> int:
        """Their cost: residues for fasta and fastq, else bytes."""
    @property
    def largest(self) -> int:
        """Cost of the costliest of them."""
    @property
    def smallest(self) -> int:
        """Cost of the cheapest of them that costs anything; 0: none does."""
    @property
    def sufficient(self) -> int:
        """How many of them have the content that the reader asks for."""
    @property
    def crc32c(self) -> int:
        """CRC-32C of all their bytes."""

@final
class Reader:
    """Cut sources, read one after another, into batches of whole records, byte for byte.

    Each source is plain, gzip, zstd, bzip2 or xz, told by its first bytes; ``-`` is file descriptor 0. Every
    byte goes into exactly one batch, in order, and a record never spans two sources. A batch spans two only
    where the records stay apart when they are read as one. Memory does not depend on the size of records.

    Args:
        sources: Paths; none is opened before the first record is asked for, as opening a FIFO waits.
        format: Name as in `millrace.core.record_formats`, without ``files``.
        record_start: For ``regex``: a record begins at a line that matches (bytes, without the line end).
        record_end: For ``regex``: a record ends after a line that matches.
        content: Letters (none: all residues) of which a record of FASTA or FASTQ needs so many to stand alone; a cut
            is made only behind one that has them, and only if another one follows.

    Raises:
        ValueError: Unknown format, or a pattern that is no regular expression.
        OSError: A source that is not there.
    """

    def __new__(
        cls,
        sources: Sequence[str | PathLike[str]],
        format: str,
        *,
        record_start: str | None = None,
        record_end: str | None = None,
        content: tuple[str, int] | None = None,
        group_cost: int = 0,
    ) -> Self: ...
    def cut(self, dest: str | PathLike[str], max_records: int, max_cost: int, max_bytes: int) -> Batch | None:
        """Write the next records to ``dest``, made or emptied, until one of the limits is reached.

        The record that reaches it is included, 0 is no limit, and there is at least one record. None at the
        end of the input, and then ``dest`` is not touched. Other threads run meanwhile.

        Raises:
            RecordError: The next record is damaged. Those before it came first, as a batch of their own; the
                error stays, and a ``dest`` that was begun is gone.
            OSError: Reading or writing failed (`DiskFull`: no space for ``dest``); the reader is of no use
                any more.
        """

    def skip(self, n_records: int) -> Batch | None:
        """Pass over the next ``n_records``, or as many as there are; None at the end of the input."""

    def digest_records(self) -> tuple[bytes, bytes, int]:
        """Pass over all records that are left, and digest them.

        Returns:
            Digests of 16 bytes, one after the other, of the bytes of each record, and of the sequence of each record that
            has a title as in FASTA, without title and whitespace; and as ``Batch.sufficient``.

        Raises:
            As `cut`, also if whole records came before.
        """

    def deal_records(self, dests: Sequence[str | PathLike[str]]) -> int:
        """Deal all records that are left to files by turns: the first record to the first of ``dests``, and so on.

        Appends to the files, which exist; none gets a header.

        Returns:
            The number of records.

        Raises:
            As `cut`, also if whole records came before.
        """

    @property
    def records(self) -> int:
        """Ordinal of the next record, from 0. Does not wait for a cut in another thread."""
    @property
    def offset(self) -> int:
        """Bytes of the sources, as on disk, read so far. Does not wait for a cut in another thread."""
    @property
    def total(self) -> int | None:
        """Bytes of all sources, as they are on disk; None if one is not a regular file."""
    @property
    def header(self) -> bytes:
        """What each batch begins with, in a format that has a header; reads ahead to know.

        Raises:
            As `cut`.
        """
    @property
    def compression(self) -> str:
        """Of the source at hand: ``gzip``, ``bgzf``, ``zstd``, ``bzip2`` or ``xz``; empty: none, or no source was opened yet."""

    @property
    def has_members(self) -> bool:
        """Whether the source at hand is gzip data of which more than one member was seen."""

    @property
    def at_end(self) -> bool:
        """Whether no record follows; reads ahead to know. False if the next cut will raise."""

def sniff(path: str | PathLike[str]) -> str | None:
    """Guess the format of a regular file, compressed or not, from its first bytes; None if unsure."""

def compression(head: bytes) -> str:
    """Name of the compression that the first bytes of a file tell, as `Reader.compression`; empty: it is not compressed."""

def compress_file(source: str | PathLike[str], dest: str | PathLike[str], compression: str) -> None:
    """Write what is in ``source`` to the new file ``dest``, compressed as `compression` names it.

    Raises:
        OSError: Reading or writing failed.
        ValueError: No such compression.
    """

class CorruptJournal(Exception):
    """A journal, or a block that is to be joined, does not hold what was committed."""

class Misfit(CorruptJournal):
    """A block cannot be joined with those before it."""

def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C of ``data``, which is not copied. Other threads run meanwhile."""

def pack(data: bytes | bytearray | memoryview) -> bytes:
    """Compress ``data`` fast (zstd), without a copy of it. Other threads run meanwhile."""

def unpack(packed: bytes | bytearray | memoryview) -> bytes:
    """Return what ``pack`` was given.

    Raises:
        OSError: ``pack`` did not make ``packed``.
    """

#: A column of a log: its numbers (64 bits, in the order of this machine), decimals, and words.
_TraceColumn: TypeAlias = tuple[bytes, int, Sequence[bytes] | None]

def parse_trace_text(block: bytes, separator: int, n_fields: int) -> list[_TraceColumn]:
    """Parse lines with ``n_fields`` fields each into columns: of numbers with as many decimals each, else of words.

    Raises:
        ValueError: Lines have another number of fields.
    """

def format_trace_text(columns: Sequence[_TraceColumn], separator: bytes, has_end: bool, most: int) -> bytes:
    """Format columns as lines; ``has_end``: the last one ends, too.

    Raises:
        ValueError: No log has such columns, or the lines have more than ``most`` bytes.
    """

def parse_otf2(block: bytes) -> tuple[list[_TraceColumn], int]:
    """Parse the complete events of a block of OTF2 into times and words; return them, and their bytes.

    Raises:
        ValueError: There are none.
    """

def format_otf2(columns: Sequence[_TraceColumn], most: int) -> bytes:
    """Format what ``parse_otf2`` has parsed; raise ValueError as ``format_trace_text`` does."""

def parse_clog2(blocks: bytes, block_bytes: int, is_big_endian: bool) -> tuple[list[_TraceColumn], int, bool]:
    """Parse the records of the whole blocks up to the end of the log into times (the bits of floats), ranks and words.

    Returns:
        The columns, the bytes of these blocks, and whether the log ends.

    Raises:
        ValueError: These are no blocks of CLOG-2.
    """

def format_clog2(columns: Sequence[_TraceColumn], block_bytes: int, is_big_endian: bool, most: int) -> bytes:
    """Format what ``parse_clog2`` has parsed; raise ValueError as ``format_trace_text`` does."""

def squeeze(data: bytes, level: int, reference: bytes | None = None) -> bytes:
    """Compress ``data`` with zstd at ``level`` (1 to 19), and by what of it is in ``reference``.

    Other threads run meanwhile.
    """

def restore(packed: bytes, length: int, reference: bytes | None = None) -> bytes:
    """Return the ``length`` bytes that ``squeeze`` was given, with the same reference, in no more memory than they need.

    Raises:
        OSError: ``squeeze`` did not make ``packed`` of so many bytes and this reference.
    """

def seal(key: bytes, context: bytes, content: bytes | bytearray | memoryview) -> bytes:
    """Digest of ``content`` in ``context``, of 16 bytes, that only who has the ``key`` of 32 bytes can make (BLAKE3).

    Raises:
        ValueError: The key has another length.
    """

@final
class BlockRef:
    """Where the bytes of one block are: in which journal, and where in it."""

    def __new__(cls, journal: str | PathLike[str], values: tuple[int, bytes, int, int, int]) -> Self:
        """From (stream, name, offset, length, crc32c)."""
    @property
    def values(self) -> tuple[str, tuple[int, bytes, int, int, int]]:
        """What `BlockRef` is made from."""
    @property
    def journal(self) -> Path: ...
    @property
    def stream(self) -> int: ...
    @property
    def name(self) -> bytes:
        """Name inside the stream, for streams that are folders or one file a record; else what joiners must know of it."""
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def crc32c(self) -> int: ...

@final
class TaskRef:
    """One committed task: records ``[first, last)``."""

    def __new__(
        cls,
        journal: str | PathLike[str],
        extent: tuple[int, int, int],
        quarantined: bool,
        inputs: Sequence[tuple[int, int]],
        blocks: Sequence[tuple[int, bytes, int, int, int]],
    ) -> Self:
        """From (first, last, fragment), digests of the inputs, and the values of its blocks."""
    @property
    def values(
        self,
    ) -> tuple[str, tuple[int, int, int], bool, list[tuple[int, int]], list[tuple[int, bytes, int, int, int]]]:
        """What `TaskRef` is made from."""
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def fragment(self) -> int:
        """Number of the fragment of the database, from 1; 0 for what belongs to the output."""
    @property
    def quarantined(self) -> bool: ...
    @property
    def inputs(self) -> list[tuple[int, int]]:
        """(bytes, crc32c) of the batch in each input."""
    @property
    def blocks(self) -> list[BlockRef]: ...

@final
class Scan:
    """What a journal holds, and what is wrong with it."""

    @property
    def run_id(self) -> bytes: ...
    @property
    def tasks(self) -> list[TaskRef]:
        """Committed tasks with all their blocks whole, in the order of their commits."""
    @property
    def damage(self) -> list[tuple[int, str, bool]]:
        """(byte offset, problem, whether it was known to be on disk) of each damaged place."""
    @property
    def end(self) -> int:
        """Where the last whole frame ends; what follows is torn."""
    @property
    def torn(self) -> int: ...

@final
class Alarm:
    """Ends the process after some time, also while a call of foreign code keeps all threads of Python waiting."""

    def __new__(cls, seconds: float, words: str, status: int) -> Alarm:
        """After ``seconds``, write ``words`` to standard error and end the process with ``status``."""
    def cancel(self) -> None: ...

@final
class Journal:
    """A journal open for appending; the layout is in ``crates/millrace-core/src/journal/mod.rs``."""

    @staticmethod
    def create(path: str | PathLike[str], run_id: bytes) -> Journal:
        """Make a new journal; its header is on disk on return."""
    @staticmethod
    def open(path: str | PathLike[str], run_id: bytes) -> tuple[Journal, Scan]:
        """Open a journal, verify every checksum, cut a torn tail.

        Raises:
            CorruptJournal: It is none, or of another version or run.
        """

    def quarantine(self, first: int, last: int, attempt: int, inputs: Sequence[tuple[int, int]]) -> TaskRef:
        """Commit that the records ``[first, last)`` are given up."""
    def append_task(
        self,
        first: int,
        last: int,
        fragment: int,
        inputs: Sequence[tuple[int, int]],
        blocks: Sequence[tuple[int, bytes, bytes]],
        attempt: int = 1,
    ) -> TaskRef:
        """Commit the task of the records ``[first, last)`` whose blocks, (stream, name, bytes) each, were made elsewhere."""
    def drop_blocks(self, task: TaskRef) -> None:
        """Give the disk back what the blocks of ``task`` take, which are not read again."""
    @property
    def unsynced(self) -> int:
        """Bytes that are not yet known to be on disk."""
    @property
    def end(self) -> int:
        """Where the next task will be."""
    def sync(self, sure: int | None = None) -> None:
        """Wait until everything appended so far is on disk; then note that what is before ``sure`` counts whatever comes."""

def forget_unsynced(path: str | PathLike[str]) -> None:
    """Cut off what the writer of a journal was not yet sure of when it ended."""

def scan(path: str | PathLike[str], verify: bool) -> Scan:
    """Read what a journal holds; with ``verify`` all checksums of all blocks. Changes nothing."""

@final
class StreamWriter:
    """Join the blocks of one stream, in order, into the file ``path``, else into the descriptor ``fd``."""

    def __new__(cls, join: str, path: str | PathLike[str] | None = None, fd: int = 1, prompt: bool = True) -> Self: ...
    def append(self, n_records: int, block: BlockRef) -> None:
        """Append a batch, verifying its checksum on the way (`CorruptJournal` if it is wrong)."""
    def set_form(self, form: int) -> None:
        """Set the form of the command that wrote the next blocks: 0 is the present one, others had other paths in it."""
    def flush(self) -> None: ...
    def finish(self) -> int:
        """Write the end, cut off what an earlier run left behind it, wait for the disk; return all bytes written."""
    def changed(self) -> str:
        """Return, after ``finish``, how somebody else changed the file while it was written, in words; empty: not at all."""

@final
class OutputPiece:
    """A block and its part of an output, which any process can write."""

    def __new__(
        cls,
        journal: str | PathLike[str],
        block: tuple[int, bytes, int, int, int],
        n_records: int,
        before: tuple[int, list[int], bool] | None,
        length: int,
    ) -> Self:
        """From the values of a block, its records, what its joiner must know, and its bytes in the output.

        ``before``: records and counts of the blocks before, and whether the output has begun; None: it is copied as it is.
        """
    @property
    def values(
        self,
    ) -> tuple[str, tuple[int, bytes, int, int, int], int, tuple[int, list[int], bool] | None, int]:
        """What `OutputPiece` is made from."""
    @property
    def length(self) -> int:
        """Its bytes in the output."""
    def excerpt(self, join: str, most: int) -> bytes:
        """Return its first ``most`` bytes in an output that is joined by ``join``."""

@final
class OutputLayout:
    """Find the part that each block has in an output, in order; a block is read only where its journal does not say enough.

    Raises:
        ValueError: There is no such join, or one joiner must see all blocks (`is_separable`).
    """

    def __new__(cls, join: str) -> Self: ...
    def place(self, n_records: int, block: BlockRef) -> OutputPiece:
        """Return the part of the next block, which is of ``n_records``.

        Raises:
            Misfit: It does not fit those before it.
            CorruptJournal: It is not what was committed.
        """
    def end(self) -> bytes:
        """Return what follows the last block."""

def is_separable(join: str) -> bool:
    """Return whether each block of an output can be joined by itself, once it is known what is before it."""

@final
class Gathered:
    """What `PartWriter.gather` has read."""

    @property
    def pieces(self) -> list[tuple[int, bytes]]:
        """(offset, bytes) of each."""

@final
class PartWriter:
    """Write blocks at given places of the file ``path``, which is there and which others write too."""

    def __new__(cls, path: str | PathLike[str], join: str = "concat") -> Self: ...
    @property
    def inode(self) -> int:
        """Number of the file in its filesystem: another one at its path has another."""
    def write(self, pieces: Sequence[tuple[int, OutputPiece]]) -> None:
        """Write blocks at their offsets; neighbours are written together.

        Raises:
            CorruptJournal: A checksum is wrong; something may have been written.
            TimeoutError: The time that `allow` gave is over.
        """
    def gather(self, pieces: Sequence[tuple[int, OutputPiece]]) -> Gathered:
        """Read blocks into memory, to be written at their offsets later.

        Raises:
            CorruptJournal: A checksum is wrong.
        """
    def write_gathered(self, gathered: Gathered) -> None:
        """Write what was gathered.

        Raises:
            TimeoutError: The time that `allow` gave is over.
        """
    def allow(self, seconds: float) -> None:
        """From now on, write for so many seconds and no longer; without it, for ever."""
    @property
    def unsynced(self) -> int:
        """Bytes that are not yet known to be on disk."""
    def sync(self) -> None:
        """Wait until everything written so far is on disk; from any thread, also during `write`."""

def joined(
    join: str, blocks: Sequence[tuple[int, BlockRef]], volatile: Sequence[str], most: int
) -> tuple[bytes, int, int]:
    """Join the first ``most`` bytes of a stream that consists of these blocks, (number of records, block).

    What matches one of ``volatile`` is left out.

    Returns:
        (first bytes, length of all, CRC-32C of all).

    Raises:
        CorruptJournal: A block is not what was committed, or cannot be joined.
    """

def extract(block: BlockRef, path: str | PathLike[str]) -> int:
    """Write one block, as it is, to a new file; return its length."""

def sync_filesystem(path: str | PathLike[str]) -> None:
    """Wait until everything written on the filesystem of the folder ``path`` is on disk."""

@final
class EventKind:
    """What a `PoolEvent` tells of."""

    Started: ClassVar[EventKind]
    Ended: ClassVar[EventKind]
    Woken: ClassVar[EventKind]

@final
class PackedForm:
    """How a compressed batch is compressed: as the input is, in as many members, or to other bytes."""

    First: ClassVar[PackedForm]
    Members: ClassVar[PackedForm]
    Again: ClassVar[PackedForm]

@disjoint_base
class Placement:
    """What is placed in a slot before the tool starts; ``to`` is relative to the slot."""

    @final
    class Batch(Placement):
        """A batch in place of the input file."""

        __match_args__ = ("source", "to")
        def __new__(cls, source: str | PathLike[str], to: str | PathLike[str]) -> Self: ...
        @property
        def source(self) -> Path: ...
        @property
        def to(self) -> Path: ...

    @final
    class Stdin(Placement):
        """A batch on standard input."""

        __match_args__ = ("source",)
        def __new__(cls, source: str | PathLike[str]) -> Self: ...
        @property
        def source(self) -> Path: ...

    @final
    class EndedStdin(Placement):
        """A pipe at its end on standard input."""

        __match_args__ = ()
        def __new__(cls) -> Self: ...

    @final
    class EarlierOutput(Placement):
        """An output file as it was before the run; ``whole``: for a task that is the serial run itself."""

        __match_args__ = ("source", "to", "whole")
        def __new__(cls, source: str | PathLike[str], to: str | PathLike[str], whole: bool) -> Self: ...
        @property
        def source(self) -> Path: ...
        @property
        def to(self) -> Path: ...
        @property
        def whole(self) -> bool: ...

    @final
    class Folder(Placement):
        """An empty folder."""

        __match_args__ = ("to",)
        def __new__(cls, to: str | PathLike[str]) -> Self: ...
        @property
        def to(self) -> Path: ...

    @final
    class Link(Placement):
        """A symbolic link."""

        __match_args__ = ("target", "to")
        def __new__(cls, target: str | PathLike[str], to: str | PathLike[str]) -> Self: ...
        @property
        def target(self) -> Path: ...
        @property
        def to(self) -> Path: ...

    @final
    class Packed(Placement):
        """A batch that is compressed; without ``to``, on standard input."""

        __match_args__ = ("source", "to", "compression", "form")
        def __new__(
            cls, source: str | PathLike[str], to: str | PathLike[str] | None, compression: str, form: PackedForm
        ) -> Self: ...
        @property
        def source(self) -> Path: ...
        @property
        def to(self) -> Path | None: ...
        @property
        def compression(self) -> str: ...
        @property
        def form(self) -> PackedForm: ...

@disjoint_base
class OutputPlace:
    """Where a tool writes an output."""

    @final
    class Stdout(OutputPlace):
        """Its standard output."""

        __match_args__ = ()
        def __new__(cls) -> Self: ...

    @final
    class File(OutputPlace):
        """A file."""

        __match_args__ = ("path",)
        def __new__(cls, path: str | PathLike[str]) -> Self: ...
        @property
        def path(self) -> Path: ...

    @final
    class Folder(OutputPlace):
        """All files of a folder."""

        __match_args__ = ("path",)
        def __new__(cls, path: str | PathLike[str]) -> Self: ...
        @property
        def path(self) -> Path: ...

#: Calls, bytes, nanoseconds, jumps, and calls of each class of sizes.
_Calls: TypeAlias = tuple[int, int, int, int, list[int]]

#: A path, how often and how long it was opened, seeks, bytes mapped, and calls that read and that wrote.
_FileCalls: TypeAlias = tuple[str, int, int, int, int, _Calls, _Calls]

@final
class PoolEvent:
    """One thing that happened in a pool."""

    @property
    def kind(self) -> EventKind: ...
    @property
    def id(self) -> int: ...
    @property
    def slot(self) -> int: ...
    @property
    def ago_seconds(self) -> float:
        """Seconds since it happened."""
    @property
    def status(self) -> str:
        """``done``, ``failed``, ``timeout``, ``still``, ``killed``, ``missing``, ``changed``, ``said``,
        ``misplaced``, ``shapeless``, ``unequal``, ``spawn`` or ``io``."""
    @property
    def exit_status(self) -> int | None:
        """Of the tool, however its task ended; None: it did not end by itself."""
    @property
    def signal(self) -> int | None: ...
    @property
    def detail(self) -> str: ...
    @property
    def disk_full(self) -> bool: ...
    @property
    def cpu_seconds(self) -> float: ...
    @property
    def wall_seconds(self) -> float: ...
    @property
    def peak_rss_bytes(self) -> int: ...
    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel killed a process of it because memory ran out."""
    @property
    def side_by_side(self) -> int:
        """Tasks of this pool that were at work at once while it was, itself included, at most."""
    @property
    def io(self) -> tuple[int, int, int, int, int, int, int, float, int]:
        """Bytes read and written, calls for both, bytes from and to disks, page faults that waited for a disk, seconds of
        waiting for disks, and processes of other users: of all its processes."""
    @property
    def calls(self) -> tuple[list[_FileCalls], int, int, int] | None:
        """What it did with each file, and processes heard of, those without counts of their streams, and files not counted;
        None: calls are not counted."""
    @property
    def stderr(self) -> bytes:
        """What the tool said: its first and its last 64 KiB."""
    @property
    def extra(self) -> list[str]:
        """Files that the tool wrote and nobody had asked for, relative to the slot."""
    @property
    def is_warm(self) -> bool:
        """Whether it ran in a fork of a tool that had waited for its input."""
    @property
    def saved_seconds(self) -> float:
        """CPU seconds that such forks saved; below 0: that they cost."""
    @property
    def cold(self) -> str:
        """Why no task runs so any more; empty: nothing new."""
    @property
    def task(self) -> TaskRef | None: ...

@final
class Pool:
    """The slots of this node, fed from one queue; used by `millrace.node.local_slots` alone."""

    def __new__(
        cls,
        journal: Journal,
        *,
        roots: Sequence[str],
        directory: str,
        skeleton: Sequence[str],
        exe: str,
        environ: Sequence[bytes],
        nice: int,
        slot_mark: bytes,
        secret: bytes,
        substitutions: Sequence[tuple[bytes, bytes]],
        streams: Sequence[tuple[str, str, Sequence[str]]],
        records_said: str,
        failures_said: Sequence[str],
        ok_statuses: Sequence[int] = ...,
        namespaces: Sequence[int] = ...,
        kills: tuple[str, bool] | None = None,
        links: Sequence[tuple[str, str]] = ...,
        ignored: Sequence[str] = ...,
        view: tuple[Sequence[str], Sequence[str], Sequence[tuple[str, str]], bool, bool] | None = None,
        still_seconds: float | None = None,
        records: tuple[str, str, str] | None = None,
        counts_calls: bool = False,
        reread_suffix: bytes = ...,
    ) -> Self:
        """Make the slots.

        Args:
            streams: (name for the user, how it is joined, what differs between two runs) of each output. Blocks that could not be joined are not
                committed; the task ends as ``shapeless``.
            ok_statuses: Exit statuses besides 0 with which the program ends well.
            namespaces: Open descriptors, copied, of those in which tools are started.
            kills: File in which the kernel counts what it kills for lack of memory, and whether it counts the
                processes of our own control group alone.
            links: (path relative to a slot, real path) of the links in ``skeleton``.
            ignored: Real paths below such links that this program writes.
            view: What tasks see of the user's folders by overlays: folders with one, other mounts below these, (path relative
                to a slot, real folder) of folders in which files are placed, whether the overlays need attributes of
                users, and whether their mounts have to be kept from coming to be outside.
            still_seconds: A tool that has used no CPU time and read or written nothing for so long is ended; None: it
                may stand still.
            records: (format, start, end) by which the records of standard input are told apart, which a program that stays
                alive gets one by one; None: the tool is started for each task.
            counts_calls: Whether the calls of tools on each file are counted, by a library that is preloaded into them.
            reread_suffix: Suffix of the file that the tool opens and reads again for each record; a library that is
                preloaded into it keeps this file open. Empty: none. Not where calls are counted.
        """
    def submit(
        self,
        id: int,
        argv: Sequence[bytes],
        placements: Sequence[Placement],
        outputs: Sequence[tuple[int, OutputPlace, bytes, bool]],
        *,
        timeout_seconds: float | None,
        first: int,
        last: int,
        attempt: int,
        inputs: Sequence[tuple[int, int]],
        urgent: bool,
        fragment: int = 0,
        exe: str | None = None,
        substitutions: Sequence[tuple[bytes, bytes]] = ...,
        patches: Sequence[tuple[int, str, str]] = ...,
        within: tuple[int, int, int | None, float, float] | None = None,
        alone: bool = False,
        warm: bool = False,
        cpu_limit_seconds: float | None = None,
        own_folder: tuple[str, bytes | None] | None = None,
    ) -> None:
        """Queue one execution of the tool.

        Args:
            fragment: What is committed is what the search of this fragment found, not a part of the output.
            exe: Another program than the pool's.
            substitutions: (private text, the user's text) of this task alone.
            patches: (stream, kind, side file) of outputs that are changed before they are committed.
            within: (column of the subject, of the bits, of the E-value if subjects are ranked by it, lowest rank, highest):
                outputs whose rows are not in this range are not committed; the task ends as ``misplaced``.
            alone: Nothing is to run beside it.
            warm: It may run in a fork of a tool that waits where it first touches its input.
            cpu_limit_seconds: CPU time of its processes after which it ends as ``timeout``; None: any.
            own_folder: Working directory and ``PWD`` of a task that does not work where its slot does.
        """
    def events(self, timeout_seconds: float) -> list[PoolEvent]:
        """Wait for events, at most so long; return all that are there.

        They come in bunches: while many tasks wait for slots, ends of tasks that are well are told when half of those
        tasks are taken.
        """
    def allow(self, tasks: int) -> None:
        """From now on, so many tasks are at work at once at most."""
    def withdraw(self) -> list[int]:
        """Take back the tasks that no slot has taken; return their ids."""
    def part(self, patience_seconds: float) -> list[str]:
        """Let programs that stay alive end, as all records are answered; what speaks against them, in words.

        Those that do not end by themselves in that time are killed.
        """
    def kill_all(self) -> None: ...
    def wake(self) -> None:
        """Make `events` return; from any thread."""
    def close(self) -> None:
        """Kill what runs, wait for it, free the slots."""

@final
class Watchdog:
    """The process that cleans up after this one, whatever happens to it; make it before any second thread."""

    def __new__(cls, root: str | PathLike[str], token: str | None = None) -> Self: ...
    def close(self) -> None:
        """End the processes that carry ``token``, and remove ``root``."""

def try_view(
    view: tuple[Sequence[str], Sequence[str], Sequence[tuple[str, str]], bool, bool],
    root: str,
    namespaces: Sequence[int],
) -> None:
    """Start a program with a view, see `Pool`, as a slot in the new folder ``root`` would.

    Raises:
        OSError: It cannot be had, or does not do what a folder does.
    """

def user_namespace() -> int:
    """Return a descriptor of a new user namespace in which all ids stay as they are.

    Raises:
        OSError: This user may not have one.
    """

def can_reread(exe: str | PathLike[str]) -> bool:
    """Tell whether the library of ``Pool``'s ``reread_suffix`` can be preloaded into a program.

    Not so are static programs, those with another C library than this process, and scripts.
    """

def sweep(root: str | PathLike[str], token: str) -> None:
    """Kill what carries ``token`` in its environment, remove ``root``."""

@final
class Candidates:
    """The entries of a BLAST database that were found; the layout of masks is in ``crates/.../candidates.rs``."""

    def __new__(cls, volumes: Sequence[int]) -> Self:
        """No entry yet of volumes with so many entries each."""
    def add(self, entry: int) -> bool:
        """Add an entry, counted over all volumes; False if there is none with this ordinal."""
    def add_range(self, first: int, last: int) -> bool:
        """Add the entries ``[first, last)``; False if one is not there."""
    def deal(self, number: int, of: int) -> None:
        """Keep the entries whose turn is ``number``, from 0, if they are dealt out to ``of`` players."""
    def __len__(self) -> int:
        """Return the number of entries added."""
    def ordinals(self) -> list[int]:
        """Ordinals of the entries added, ascending."""
    def write(self, volume: int, path: str | PathLike[str]) -> None:
        """Write the mask of one volume to a new file."""

@final
class HitList:
    """Read BLAST's list of hits with links (``-html -num_alignments 0``), in pieces of any size.

    Args:
        within: (lowest, highest) rank of the subjects that count; None: all do.
        by_evalue: As for `Ranking`.
    """

    def __new__(cls, within: tuple[float, float] | None = None, *, by_evalue: bool = False) -> Self: ...
    def read(self, piece: bytes, candidates: Candidates) -> None:
        """Read the next piece and add the numbered entries. Other threads run meanwhile."""
    def finish(self, candidates: Candidates) -> tuple[int, list[bytes], int]:
        """Read what is left.

        Returns:
            (most subjects of a query, ids of entries without a number, how many numbers no entry has).
        """

@final
class KnownEntries:
    """The entries of a database, by the digests of their sequences, beside those of an earlier one.

    Args:
        sorted: Digests of 16 bytes of the earlier database, by ``sort_digests``.
        digests: One digest of each entry, in their order.

    Raises:
        ValueError: These are no digests, or not sorted.
    """

    def __new__(cls, sorted: bytes, digests: bytes) -> Self: ...
    def new_ranges(self) -> list[tuple[int, int]]:
        """Return the ranges ``[first, last)`` of the entries that the earlier database did not have."""
    def ordinals(self, numbers: Sequence[int]) -> list[int] | None:
        """Return the ordinals, ascending, of the entries with these numbers; None: there is no such number."""
    def numbers(self, ordinals: Sequence[int]) -> list[int] | None:
        """Return the numbers, ascending and each once, of these entries; None: one is new, or is not there."""

def sort_digests(digests: bytes) -> bytes:
    """Sort digests of 16 bytes, each of them once.

    Raises:
        ValueError: The bytes are no whole number of digests.
    """

def subjects_by_query(text: bytes) -> list[tuple[list[int], list[bytes]]]:
    """Return the subjects of each query of a complete list of hits: entries by ordinal, and ids of the others."""

@final
class Ranking:
    """Read the lists of hits of one query, in pieces of any size: how its subjects are cut into slices by their rank.

    Args:
        by_evalue: Their rank is the E-value, and the bits where that is 0.0; else it is the bits.
    """

    def __new__(cls, *, by_evalue: bool = False) -> Self: ...
    def read(self, piece: bytes) -> None:
        """Read the next piece. Other threads run meanwhile."""
    def finish(self) -> int | None:
        """End a list, after which another may follow; the number of its subjects, None if they cannot be ranked."""
    def slice(self, index: int, n: int) -> tuple[float, float] | None:
        """(lowest rank, highest) of slice ``index``, from 0, of ``n``, the highest first; None: it is empty."""
