"""Runs that end with the hits of each batch: the nodes encode the candidates, and no batch is finished.

Such a run has one output: a block for each batch, in input order, which is its length and its hits. In the place of a
database of candidates, ``HitListBackend`` writes that block, and the finish copies it to standard output. So slots,
journals and nodes treat it as any other finish.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from millrace.adapters.database_backend import CandidateSlice, FragmentOutput, find_backend
from millrace.core.errors import CorruptError
from millrace.core.tasks import RankTask, SliceTask
from millrace.core.tool_use import DatabaseArg, FragmentPlan, OutputArg, OutputUse, ToolUse, UserCommand
from millrace.extensions.pack import hits, result_codec
from millrace.extensions.pack.hits import BatchHits
from millrace.extensions.pack.result_codec import CandidateReader
from millrace.planning.program_lookup import find_program

#: Name of the output, and of the file of a batch.
OUTPUT, BLOCK = "hits", "hits"

#: Length of the hits of a batch, in bytes.
_LENGTH = struct.Struct("<I")


def end_with_hits(use: ToolUse, command: UserCommand, backend: str = __name__) -> ToolUse:
    """Return ``use``, which searches in fragments, with the hits of the batches as its only output.

    Args:
        backend: Module whose ``BACKEND`` writes what the output has of a batch.

    Raises:
        ToolError: The program that copies a file is not found.
    """
    assert use.fragmented  # it is to be searched
    copier = str(find_program("cat", command.cwd, command.environ))
    fragmented = replace(
        use.fragmented, finish=(copier, DatabaseArg()), divisible=False, ranked=None, backend=backend
    )  # fmt: skip
    # Never run as a whole; its words still say which files the tool sees.
    argv = tuple(f"{word.prefix}{os.devnull}" if isinstance(word, OutputArg) else word for word in use.argv)
    output = OutputUse(name=OUTPUT, path=OUTPUT, to=os.devnull, stdout=True)
    return replace(use, argv=argv, outputs=(output,), fragmented=fragmented)


class HitListBackend:
    """The backend of such a run: fragments are those of the family, candidates are only listed."""

    #: Reads the hits of a batch from its candidates; set by ``prepare_fragments``.
    _read_hits: CandidateReader

    def prepare_fragments(
        self, fragmented: FragmentPlan, folder: Path, cwd: Path, environ: Mapping[str, str]
    ) -> Sequence[str]:
        """See ``DatabaseBackend.prepare_fragments``."""
        found = find_backend(replace(fragmented, backend="")).prepare_fragments(fragmented, folder, cwd, environ)
        codec = (
            result_codec.find_result_codec(str(fragmented.about.__struct_config__.tag)) if fragmented.about else None
        )
        assert codec  # by which the coordinator has planned this run
        self._read_hits = codec.make_candidate_reader(fragmented, cwd, environ)
        return found

    def make_candidates(
        self,
        fragmented: FragmentPlan,
        folder: Path,
        cwd: Path,
        environ: Mapping[str, str],
        found: Sequence[FragmentOutput],
        n_records: int,
    ) -> str:
        """Write the block of a batch."""
        data = hits.encode_hits([self._read_hits(n_records, found)])
        (folder / BLOCK).write_bytes(_LENGTH.pack(len(data)) + data)
        return BLOCK

    def make_slice(
        self, fragmented: FragmentPlan, folder: Path, cwd: Path, environ: Mapping[str, str], found: Sequence[FragmentOutput], part: SliceTask | RankTask,
    ) -> CandidateSlice | None:  # fmt: skip
        """See ``DatabaseBackend.make_slice``: hits are not ranked."""

    def list_patches(self, fragmented: FragmentPlan, folder: Path) -> Sequence[tuple[int, str, str]]:
        """See ``DatabaseBackend.list_patches``: none."""
        return ()


BACKEND = HitListBackend()


class BlockReader:
    """A reader of the output of such a run, in pieces of any size.

    Args:
        entries: Entries of the database.
    """

    def __init__(self, entries: int) -> None:
        self._entries, self._rest = entries, bytearray()

    def read_batches(self, data: bytes) -> Iterator[BatchHits]:
        """Yield the batches that ``data`` completes.

        Raises:
            CorruptError: The bytes are not what ``HitListBackend`` writes.
        """
        self._rest += data
        at = 0
        while len(self._rest) - at >= _LENGTH.size:
            begin = at + _LENGTH.size
            end = begin + _LENGTH.unpack_from(self._rest, at)[0]
            if len(self._rest) < end:
                break
            yield from hits.decode_hits(bytes(self._rest[begin:end]), self._entries)
            at = end
        del self._rest[:at]

    def check_end(self) -> None:
        """Check that the last block was complete.

        Raises:
            CorruptError: It is cut off.
        """
        if self._rest:
            raise CorruptError("the hits of a batch are cut off", "this must not happen: please report it")
