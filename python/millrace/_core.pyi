"""What `crates/millrace-py` offers to Python."""

from collections.abc import Sequence
from os import PathLike
from typing import Self, final

__version__: str

def join(spec: str, blocks: list[tuple[int, bytes]]) -> bytes:
    """Join the blocks (n_records, bytes) of one output stream, in input order, by the rule ``spec``."""

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
    def bytes(self) -> int:
        """Their bytes."""
    @property
    def cost(self) -> int:
        """Their cost: residues for fasta and fastq, else bytes."""
    @property
    def largest(self) -> int:
        """Cost of the costliest of them."""
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
        format: Name as in `millrace.plan.formats`, without ``files``.
        record_start: For ``regex``: a record begins at a line that matches (bytes, without the line end).
        record_end: For ``regex``: a record ends after a line that matches.

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
        glue_empty: bool = False,
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
    def at_end(self) -> bool:
        """Whether no record follows; reads ahead to know. False if the next cut will raise."""

def sniff(path: str | PathLike[str]) -> str | None:
    """Guess the format of a regular file, compressed or not, from its first bytes; None if unsure."""
