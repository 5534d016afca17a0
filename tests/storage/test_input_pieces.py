"""Records of an input that is cut in pieces: those that one reader of the whole file finds, wherever the pieces begin."""

from __future__ import annotations

import random
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import wait_until

from millrace import _core
from millrace.cluster.piece_input import PieceInput
from millrace.core.errors import MillraceError
from millrace.core.job import JobSpec
from millrace.core.tool_use import FetchedFile, InputUse, RemoteFileView, ToolUse, UserCommand
from millrace.execution.batch_table import ensure_spooled
from millrace.node.batch_files import (
    BatchLimits,
    EndOfInput,
    PieceCut,
    SkippedRecords,
    SpooledBatch,
    digest_cut,
    split_spooled_batch,
)
from millrace.node.input_feeder import InputFeeder
from millrace.node.input_pieces import InputPieces, read_range
from millrace.planning.result_fingerprint import fingerprint_run
from millrace.storage.locations import query_file_status
from millrace.storage.record_starts import find_record_start


def make_fasta(chance: random.Random, number: int) -> str:
    lines = ["".join(chance.choices("ACGT>", k=chance.randint(0, 70))) for _ in range(chance.randint(0, 4))]
    return (
        f">r{number} of >others\n"
        + "".join(f"{line.lstrip('>') or 'A'}\n" for line in lines)
        + ">?gap\nAC\n" * (number % 5 == 0)
    )


def make_fastq(chance: random.Random, number: int) -> str:
    """Reads whose qualities look like headers and separators, some on several lines."""
    sizes = [chance.randint(1, 40) for _ in range(chance.choice([1, 1, 1, 2, 3]))]
    sequence = [chance.choice("ACGTN") * size for size in sizes]
    quality = [chance.choice(["@", "+", "@r7 ", "A", "I"]).strip() for _ in sizes]
    quality = [(begin + "".join(chance.choices("@+ACGT#I", k=size)))[:size] for begin, size in zip(quality, sizes, strict=True)]  # fmt: skip
    return "\n".join([f"@r{number}", *sequence, "+", *quality]) + "\n"


def make_line(chance: random.Random, number: int) -> str:
    return "x" * chance.choice([0, 3, 200]) + f"{number}\n"


def make_sdf(chance: random.Random, number: int) -> str:
    """Molecules with a blank title, and data in which the end of a molecule stands."""
    item = ["> <note>", chance.choice(["$$$$", "M  END", "text"]), "more", ""] * chance.randint(0, 2)
    return "\n".join([chance.choice(["", f"mol{number}"]), " program", "", "  1 0", "M  END", *item, "$$$$"]) + "\n"


def make_mol2(chance: random.Random, number: int) -> str:
    head = f"########## Name: {number}\n\n" * chance.randint(0, 1)
    return f"{head}@<TRIPOS>MOLECULE\nm{number}\n" + "@<TRIPOS>ATOM\n1 C 0 0 0\n" * chance.randint(1, 3)


MAKERS: dict[str, Callable[[random.Random, int], str]] = {
    "fasta": make_fasta, "fastq": make_fastq, "lines": make_line, "sdf": make_sdf, "mol2": make_mol2,
}  # fmt: skip


@contextmanager
def cut_in_pieces(
    path: Path, form: str, edges: list[int], n_ranks: int = 2, lost: set[int] | None = None
) -> Iterator[PieceInput]:
    """Open a file as nodes cut it, each in a folder of its own; those that get into ``lost`` are not heard any more."""
    about = query_file_status(str(path))
    file = FetchedFile(name=path.name, place=str(path), key="k", size=about.size, version=about.version, mtime_ns=about.mtime_ns)  # fmt: skip
    item = InputUse(path=path.name, format=form)
    extents = list(zip(edges, [*edges[1:], about.size], strict=True))
    spool = path.parent / "spool"
    shutil.rmtree(spool, ignore_errors=True)  # of a start before
    spool.mkdir()
    gone, lost = set[int](), set() if lost is None else lost
    source = PieceInput(file, item, extents, spool)
    is_over, something = threading.Event(), threading.Event()
    nodes = [InputPieces(file, item, spool / f"node{rank}", something.set) for rank in range(n_ranks)]

    def carry_messages() -> None:
        while not is_over.is_set():
            for rank in lost - gone:
                gone.add(rank)
                source.drop_rank(rank)
            for rank, request in source.pop_requests([rank for rank in range(n_ranks) if rank not in gone]):
                nodes[rank].request_index(request)
            something.wait(0.002)
            something.clear()
            for rank, node in enumerate(nodes):
                for index in node.pop_indexes() if rank not in gone else ():
                    source.add_index(rank, index)

    thread = threading.Thread(target=carry_messages)
    thread.start()
    try:
        yield source
    finally:
        is_over.set()
        thread.join()
        for node in nodes:
            node.close()


def find_record_ends(path: Path, form: str) -> list[int]:
    reader, at, found = _core.Reader([path], form), 0, []
    while record := reader.skip(1):
        at += record.bytes
        found.append(at)
    return found


def write_records(path: Path, form: str, chance: random.Random, n: int) -> bytes:
    path.write_text("".join(MAKERS[form](chance, number) for number in range(n)))
    return path.read_bytes()


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("seed", range(4))
def test_pieces_hold_the_records_of_the_file(tmp_path: Path, form: str, seed: int) -> None:
    """Pieces end anywhere: within records, within lines, and some hold no beginning of a record."""
    chance = random.Random(f"{form} {seed}")
    path = tmp_path / "in"
    content = write_records(path, form, chance, 400)
    edges = [0, *sorted(chance.sample(range(1, len(content)), 40))]
    ends, reached, n = find_record_ends(path, form), 0, 0
    with cut_in_pieces(path, form, edges) as source:
        while cut := source.cut(str(tmp_path / "batch"), 0, 0, chance.choice([50, 3000])):
            own = content[reached : reached + cut.bytes]
            reached, n = reached + cut.bytes, n + cut.records
            assert reached == source.offset == ends[n - 1], "whole records, and as many as it says"
            assert cut.crc32c == _core.crc32c(own)
            if isinstance(cut, PieceCut):
                assert read_range(cut.source.file, cut.source.first, cut.source.last) == own
            else:
                assert (tmp_path / "batch").read_bytes() == own
    assert (reached, n) == (len(content), len(ends))


def test_batches_of_another_start_are_skipped(tmp_path: Path) -> None:
    """Whether a start before cut them in pieces, or by record; their checksums are told."""
    chance = random.Random(5)
    path = tmp_path / "in"
    content = write_records(path, "fastq", chance, 900)
    ends, at = find_record_ends(path, "fastq"), 0
    with cut_in_pieces(path, "fastq", [0, 9000, 20_000]) as source:
        while at < len(ends):
            n = min(chance.randint(1, 200), len(ends) - at)
            own = content[ends[at - 1] if at else 0 : ends[at + n - 1]]
            found = source.skip(n)
            assert found and (found.records, found.bytes, found.crc32c) == (n, len(own), _core.crc32c(own))
            at += n
        assert source.skip(1) is None


def test_damaged_record_is_named_after_those_before(tmp_path: Path) -> None:
    path = tmp_path / "in"
    good = "@a\nAC\n+\nII\n" * 50
    path.write_text(good + "@b\nAC\nII\n" + good)
    with cut_in_pieces(path, "fastq", [0, 100, 300, 700]) as source:
        n = 0
        with pytest.raises(MillraceError, match=r"in: from byte 550 on: expected '\+'"):
            while cut := source.cut(str(tmp_path / "batch"), 0, 0, 100):
                n += cut.records
    assert n == 50


def test_read_at_a_quality_like_a_header_is_found() -> None:
    text = b"\n@@@@\n@r2 of two\nACGT\n+\n@III\n@r3\nA\n+\n@\n"
    assert find_record_start(text, 1, "fastq", is_end=True) == text.index(b"@r2")
    assert find_record_start(text, text.index(b"ACGT"), "fastq", is_end=True) == text.index(b"@r3")
    assert find_record_start(b"\n@r1\nACGT\n+\nII", 1, "fastq", is_end=False) is None, "the window does not show it"


def cut_one_batch(source: PieceInput, path: Path) -> SpooledBatch:
    """Cut a batch whose bytes stay where they are."""
    cut = source.cut(str(path), 0, 0, 1 << 20)
    assert isinstance(cut, PieceCut)
    return SpooledBatch(0, cut.records, cut.cost, cut.bytes, (digest_cut(cut),), (path,), source=cut.source)


def test_batch_that_failed_is_fetched_to_be_split(tmp_path: Path) -> None:
    path = tmp_path / "in"
    content = write_records(path, "fasta", random.Random(1), 100)
    with cut_in_pieces(path, "fasta", [0, 3000]) as source:
        batch = cut_one_batch(source, tmp_path / "batch")
        ensure_spooled(batch)
        parts = split_spooled_batch(batch, 7, [InputUse(path="in", format="fasta")], tmp_path, "", "")
    texts = [part.spooled[0].read_bytes() for part in parts]
    assert b"".join(texts) == content[: batch.bytes] and [part.n_records for part in parts] == [7, batch.n_records - 7]


def test_bytes_that_changed_after_the_cut_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "in"
    write_records(path, "fasta", random.Random(1), 100)
    with cut_in_pieces(path, "fasta", [0]) as source:
        batch = cut_one_batch(source, tmp_path / "batch")
        path.write_bytes(path.read_bytes().lower())
        with pytest.raises(MillraceError, match="changed while it was read"):
            ensure_spooled(batch)
        assert not batch.spooled[0].exists()


#: What a start has done: (first, last, digests) of each batch, with its bytes.
Done = dict[tuple[int, int], tuple[Sequence[tuple[int, int]], bytes]]


def run_until_killed(path: Path, form: str, edges: list[int], done: Done, chance: random.Random) -> bool:
    """Run a start that loses a node, and is killed after some batches, of which some are done; return whether it came to its end."""
    lost, item = set[int](), InputUse(path=path.name, format=form)
    with cut_in_pieces(path, form, edges, 3, lost) as source:
        extents = [(first, last, digests) for (first, last), (digests, _) in sorted(done.items())]
        feeder = InputFeeder([item], [source], path.parent / "spool", extents, lambda: None)
        feeder.start_thread()
        for _ in range(chance.randint(1, 12)):
            feeder.request_batches(BatchLimits(bytes=chance.choice([60, 2000, 9000])))
            assert wait_until(lambda: any(not isinstance(each, SkippedRecords) for each in feeder.results))
            if chance.random() < 0.1:
                lost.add(2)
            while feeder.results:
                match feeder.results.popleft():
                    case SpooledBatch() as batch if chance.random() < 0.7:
                        ensure_spooled(batch)
                        done[batch.first, batch.last] = batch.digests, batch.spooled[0].read_bytes()
                    case EndOfInput(records):
                        return sum(last - first for first, last in done) == records
                    case BaseException() as error:
                        raise error
    return False


@pytest.mark.parametrize("form", MAKERS)
def test_killed_starts_do_each_record_once(tmp_path: Path, form: str) -> None:
    """Ten kills of starts that lose nodes, for each format."""
    chance = random.Random(form)
    path, n_kills = tmp_path / "in", 0
    while n_kills < 10:
        content = write_records(path, form, chance, 300)
        edges, done = [0, *sorted(chance.sample(range(1, len(content)), 12))], Done()
        while not run_until_killed(path, form, edges, done, chance):
            n_kills += 1
        assert b"".join(text for _, (_, text) in sorted(done.items())) == content


def test_input_counts_as_the_same_cut_or_fetched(tmp_path: Path) -> None:
    """So that one node resumes what several began."""
    file = FetchedFile(name="in.fa", place="hdfs://nn/in.fa", key="k", size=9, version="1.9", mtime_ns=1)
    use = ToolUse(adapter="generic", argv=("t", "in.fa"), inputs=(InputUse(path="in.fa", format="fasta"),), outputs=())
    found = []
    for files, cut in (((file,), None), ((), file)):
        view = RemoteFileView(root=tmp_path, folder=tmp_path, files=files, argv=("t", "in.fa"), cut_by_nodes=cut)
        command = UserCommand(argv=("t", "in.fa"), cwd=tmp_path, environ={}, exe=Path(sys.executable), view=view)
        found.append(fingerprint_run(JobSpec(command=("t", "in.fa")), use, command)["input in.fa"])
    assert found == ["9 bytes, version 1.9"] * 2
