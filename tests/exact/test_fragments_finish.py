"""What was found is finished by several slots at once, by query or by subject, and the bytes are those of the serial run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from exact_cases import make_relatives, records
from fragment_driver import command_of, understand
from parameter_choice import again

from millrace.core.tasks import RankTask, SliceTask, decode_task_kind
from millrace.report.events import TaskEvent, read_events

pytestmark = pytest.mark.skipif(shutil.which("blastp") is None, reason="BLAST+ is not installed")


@pytest.mark.slow
def test_candidates_of_one_batch_are_searched_by_all_slots(data: Path, tmp_path: Path) -> None:
    protein = b"".join(records(data / "proteins_db.faa")[100].splitlines()[1:])[:90]
    near = [protein[:k] + b"W" + protein[k + 1 :] for k in range(len(protein))]
    entries = (b">entry%d of a family of which all are found\n%b\n" % (k, near[k % 90]) for k in range(900))
    (tmp_path / "db.faa").write_bytes(b"".join(entries))
    (tmp_path / "q.faa").write_bytes(b"".join(b">query%d\n%b\n" % (k, near[k]) for k in range(10)))
    make = ["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"]
    subprocess.run(make, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    tool = ["blastp", "-query", "q.faa", "-db", "db", "-outfmt", "7", "-out"]
    subprocess.run([*tool, "serial"], cwd=tmp_path, check=True)
    options = ["-q", "--slots", "3", "--batch", "10", "--fragments", "2", "--keep-run-dir", "--run-dir", "run"]
    subprocess.run([sys.executable, "-m", "millrace", "run", *options, "--", *tool, "out"], cwd=tmp_path, check=True)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "serial").read_bytes()
    extents: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in read_events(tmp_path / "run" / "events.jsonl"):
        if isinstance(event, TaskEvent):
            extents[event.fragment].append((event.first, event.last))
    assert extents[1] == extents[2] == [(0, 10)], "one batch"
    assert sorted(extents[0]) == [(0, 4), (4, 7), (7, 10)]


def run(folder: Path, tool: list[str], *more: str) -> list[TaskEvent]:
    """Compare what the tool writes by itself and in fragments; returns what was done with what was found."""
    subprocess.run([*tool, "-out", "serial"], cwd=folder, check=True)
    options = ["-q", "--slots", "3", "--fragments", "2", "--keep-run-dir", "--run-dir", "run", *more]
    command = [sys.executable, "-m", "millrace", "run", *options, "--", *tool, "-out", "out"]
    subprocess.run(command, cwd=folder, check=True)
    assert (folder / "out").read_bytes() == (folder / "serial").read_bytes()
    assert (folder / "out").stat().st_size
    events = [event for event in read_events(folder / "run" / "events.jsonl") if isinstance(event, TaskEvent)]
    return [event for event in events if not 0 < event.fragment <= 2]


def blastn(*more: str, most: int = 20000) -> list[str]:
    return ["blastn", "-query", "q.fna", "-db", "db", "-outfmt", "6", "-max_target_seqs", str(most), *more]


def slices(events: list[TaskEvent]) -> list[TaskEvent]:
    return [event for event in events if isinstance(decode_task_kind(event.fragment), RankTask | SliceTask)]


@pytest.mark.slow
@pytest.mark.parametrize("ids", [again([]), ["-parse_seqids"]])
def test_query_with_many_subjects_is_written_by_all_slots(family: Path, ids: list[str]) -> None:
    make_database(family, *ids)
    events = run(family, blastn())
    assert len(events) >= 3 and {event.status for event in events} == {"done"}
    assert len(slices(events)) == len(events) - 1, "the last one ends the record"
    assert min(event.out for event in events) > 10_000
    assert gathered(family) == (family / "serial").read_bytes()


def gathered(family: Path) -> bytes:
    command = [sys.executable, "-m", "millrace", "gather", "run"]
    return subprocess.run(command, cwd=family, check=True, capture_output=True).stdout


@pytest.mark.slow
def test_misplaced_slices_are_dropped(family: Path) -> None:
    """The best alignment of a subject is filtered out, so that it comes elsewhere in the order."""
    # Where the best alignment of a subject is dropped, another one decides where it stands.
    make_database(family)
    events = run(family, blastn("-perc_identity", "97"))
    assert "misplaced" in {event.status for event in slices(events)}
    assert events[-1].status == "done" and not events[-1].fragment
    assert gathered(family) == (family / "serial").read_bytes()


@pytest.mark.slow
def test_one_task_writes_a_limited_number_of_subjects(family: Path) -> None:
    make_database(family)
    events = run(family, blastn(most=6000))
    assert not any(event.out for event in slices(events))
    assert len((family / "serial").read_bytes().splitlines()) < 8000


@pytest.mark.parametrize(
    "options",
    [
        ["-culling_limit", "3"],
        again(["-outfmt", "6 qaccver saccver evalue"]),
        again(["-outfmt", "7"]),
        again(["-sorthits", "3"]),
    ],
)
def test_output_without_visible_order_has_no_slices(family: Path, options: list[str]) -> None:
    make_database(family)
    tool = blastn()
    if options[0] == "-outfmt":
        del tool[5:7]
    assert not slices(run(family, [*tool, *options]))


@pytest.mark.slow
def test_two_entries_of_equal_name_are_two_subjects(family: Path) -> None:
    text = (family / "db.fna").read_bytes()
    first, rest = text.split(b">entry1 ", 1)
    (family / "db.fna").write_bytes(first + b">entry5000 " + rest)
    make_database(family)
    run(family, blastn())


def proteins(program: str, *more: str, most: int = 20000) -> list[str]:
    return [program, "-query", "q.fna", "-db", "db", "-outfmt", "6", "-max_target_seqs", str(most), *more]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("blastp", []),
        again("blastp", ["-outfmt", "6 score evalue sseqid bitscore btop", "-comp_based_stats", "0", "-max_hsps", "1"]),
        again("blastp", ["-comp_based_stats", "3", "-evalue", "1e-9", "-use_sw_tback"]),
        again("tblastn", []),
    ],
)
def test_proteins_are_written_by_all_slots_once_ranked(
    data: Path, kin: Path, tmp_path: Path, program: str, options: list[str]
) -> None:
    """First tasks compute E-values and ranks, then others write the rows."""
    if program == "tblastn":
        make_relatives(data, tmp_path / "q.fna", tmp_path / "db.fna", genes=True)
    make_database(tmp_path, *(["-parse_seqids"] if "-outfmt" in options else []), letters=PROGRAMS[program])
    tool = proteins(program, *options)
    if "-outfmt" in options:
        del tool[5:7]
    events = run(tmp_path, tool, "--slots", "4")
    assert {event.status for event in events} == {"done"}
    shares = [event for event in slices(events) if isinstance(decode_task_kind(event.fragment), RankTask)]
    written = [event for event in events if event not in shares]
    assert len(shares) == len(written) >= 2 and not events[-1].fragment
    assert max(event.start for event in shares) < min(event.start for event in written), "first ranks, then rows"
    rows = (tmp_path / "serial").stat().st_size
    assert sum(event.out for event in written) == rows and max(event.out for event in written) < 0.7 * rows
    assert gathered(tmp_path) == (tmp_path / "serial").read_bytes()


@pytest.mark.slow
def test_protein_without_its_best_alignment_keeps_its_rank(kin: Path, tmp_path: Path) -> None:
    """-evalue drops it, and a second alignment is shown."""
    make_database(tmp_path, letters="prot")
    tool = proteins("blastp", "-qcov_hsp_perc", "20", "-evalue", "1e-9")
    events = run(tmp_path, tool, "--slots", "4")
    assert events[-1].status == "done" and not events[-1].fragment
    # How many slices there are depends on how fast they are, and with few the rows may be in order by luck.
    fragmented = understand(command_of(tool, tmp_path), [1, 1]).fragmented
    assert fragmented and fragmented.ranked and "-evalue" in fragmented.ranked.argv
    assert "-qcov_hsp_perc" not in fragmented.ranked.argv and "-qcov_hsp_perc" in fragmented.finish


@pytest.mark.slow
def test_one_task_writes_a_limited_number_of_proteins(kin: Path, tmp_path: Path) -> None:
    make_database(tmp_path, letters="prot")
    events = run(tmp_path, proteins("blastp", most=5000), "--slots", "4")
    assert {event.status for event in slices(events)} == {"misplaced"}
    assert len((tmp_path / "serial").read_bytes().splitlines()) < 6000


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["-outfmt", "6 qaccver saccver bitscore"],
        again(["-max_target_seqs", "4999"]),
    ],
)
def test_proteins_without_visible_order_have_no_slices(kin: Path, tmp_path: Path, options: list[str]) -> None:
    make_database(tmp_path, letters="prot")
    tool = proteins("blastp")
    at = tool.index(options[0])
    tool[at : at + 2] = options
    assert not slices(run(tmp_path, tool, "--slots", "4"))


PROGRAMS = {"blastp": "prot", "tblastn": "nucl"}


def make_database(folder: Path, *more: str, letters: str = "nucl") -> None:
    make = ["makeblastdb", "-in", "db.fna", "-dbtype", letters, "-out", "db", *more]
    subprocess.run(make, cwd=folder, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def family(bench_of: Path, tmp_path: Path) -> Path:
    """A folder with one gene and nine thousand sequences like it."""
    shutil.copy(bench_of / "gene.fna", tmp_path / "q.fna")
    shutil.copy(bench_of / "alike.fna", tmp_path / "db.fna")
    return tmp_path


@pytest.fixture
def kin(bench_of: Path, tmp_path: Path) -> Path:
    """A folder with one protein and seven thousand that are like it."""
    shutil.copy(bench_of / "protein.faa", tmp_path / "q.fna")
    shutil.copy(bench_of / "relatives.faa", tmp_path / "db.fna")
    return tmp_path


@pytest.mark.slow
def test_one_long_query_among_short_ones_is_in_fragments(data: Path, tmp_path: Path) -> None:
    """The plan decides by the queries; the others are searched whole, and the bytes are those of the serial run."""
    entries = [b"".join(record.splitlines()[1:]) for record in records(data / "proteins_db.faa")]
    copies = (b">e%d_%d\n%b\n" % (copy, k, entry) for copy in range(5) for k, entry in enumerate(entries))
    (tmp_path / "db.faa").write_bytes(b"".join(copies))
    long = b"".join(entries[:40])[:9000]
    queries = [*(entry[:300] for entry in entries[50:52]), long]
    (tmp_path / "q.faa").write_bytes(b"".join(b">q%d\n%b\n" % (k, query) for k, query in enumerate(queries)))
    make = ["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"]
    subprocess.run(make, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    tool = ["blastp", "-query", "q.faa", "-db", "db", "-outfmt", "6"]
    run(tmp_path, tool, "--fragments", "auto", "--batch", "1")
    events = [e for e in read_events(tmp_path / "run" / "events.jsonl") if isinstance(e, TaskEvent)]
    assert {event.first for event in events if event.fragment > 0} == {2}
    assert {event.first for event in events if event.fragment == 0} == {0, 1, 2}, "whole, or the finish of the long one"
