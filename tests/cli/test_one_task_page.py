"""The page that tells the story of one task: its run is done again, with a tool that is killed, and compared with the page."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from harness import take, tools, wait_until
from process_lookup import read
from tool_batches import need

from millrace import _core

REPO = Path(__file__).resolve().parents[2]
PAGE = (REPO / "docs" / "one-task.md").read_text()

#: Layout of the head of a frame, as in crates/millrace-core/src/journal/mod.rs: magic, kind, flags, stream, first, last, fragment,
#: attempt, length of the payload, length of the name, nothing, checksum.
HEAD = struct.Struct("<4sBBHQQIIQHHI")

#: A line of the page's listing of blocks.
BLOCK = re.compile(r"records \[(\d+), (\d+)\) at byte (\d+), (\d+) bytes, CRC-32C ([0-9a-f]{8})")

Event = dict[str, Any]


def read_blocks(language: str) -> list[str]:
    """The blocks of a language on the page."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def select_events(lines: str) -> dict[str, list[Event]]:
    """Events by their names."""
    found: dict[str, list[Event]] = {}
    for event in map(json.loads, lines.splitlines()):
        found.setdefault(event["event"], []).append(event)
    return found


def read_state(pid: int) -> bytes:
    """The state of a process as one letter; empty if it has ended."""
    return read(pid, "stat").rpartition(b") ")[2][:1]


def kill_one_tool(run: int) -> bool:
    """Let a tool of a run die of SIGSEGV; it is stopped first, so that it cannot end by itself."""
    for pid in tools(run):
        with suppress(OSError):
            os.kill(pid, signal.SIGSTOP)
            assert wait_until(lambda pid=pid: read_state(pid) in (b"T", b"Z", b""))
            if read_state(pid) == b"T":
                os.kill(pid, signal.SIGSEGV)
                os.kill(pid, signal.SIGCONT)
                return True
    return False


@pytest.fixture(scope="module")
def rerun(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page's run, done again."""
    need("blastp")
    folder = tmp_path_factory.mktemp("one-task")
    take(data / "proteins_db.faa", folder / "db.faa", 2500)
    take(data / "proteins_queries.faa", folder / "queries.faa", 12)
    make = "makeblastdb -in db.faa -dbtype prot -out proteins"
    subprocess.run(make.split(), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    words = shlex.split(read_blocks("console")[0].removeprefix("$ millrace"))
    journal = folder / "hits.tsv.millrace" / "journal.mrj"
    command = [sys.executable, "-m", "millrace", *words]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        # A failure before any result would be held against the tool, and not retried at once.
        assert wait_until(lambda: journal.exists() and bool(_core.scan(journal, False).tasks))
        assert wait_until(lambda: kill_one_tool(process.pid) or process.poll() is not None)
        _, said = process.communicate()
    assert process.returncode == 0, said.decode()
    return folder


@pytest.mark.process
def test_events_of_the_page_are_those_of_a_run(rerun: Path) -> None:
    (lines,) = read_blocks("json")
    shown, real = select_events(lines), select_events((rerun / "hits.tsv.millrace" / "events.jsonl").read_text())
    assert {name: len(events) for name, events in shown.items()} == {name: len(events) for name, events in real.items()}
    for name, events in shown.items():
        assert {tuple(event) for event in events} == {tuple(event) for event in real[name]}
    for events in (shown, real):
        ((retry,), (end,)) = events["retry"], events["end"]
        of_batch = [task for task in events["task"] if (task["first"], task["last"]) == (retry["first"], retry["last"])]
        assert [(task["status"], task["attempt"]) for task in of_batch] == [("failed", 1), ("done", 2)]
        assert of_batch[0]["out"] == 0 < of_batch[1]["out"] and retry["reason"] == "killed by SIGSEGV"
        assert (end["status"], end["records_done"]) == ("done", 12)
    extents = [{(task["first"], task["last"]) for task in events["task"]} for events in (shown, real)]
    assert extents[0] == extents[1]


@pytest.mark.process
def test_journal_of_the_page_is_that_of_a_run(rerun: Path) -> None:
    """The page's program lists the blocks; its frame has the bytes that it says; the block is at its place in the output."""
    (program,) = read_blocks("python")
    done = subprocess.run([sys.executable, "-c", program], cwd=rerun, capture_output=True, text=True, check=True)
    real = [tuple(match) for match in BLOCK.findall(done.stdout)]
    (shown,) = [[tuple(match) for match in BLOCK.findall(text)] for text in read_blocks("text")]
    # Offsets depend on the order in which tasks end, and bytes on the release of BLAST.
    assert sorted(block[:2] for block in shown) == sorted(block[:2] for block in real)
    journal = (rerun / "hits.tsv.millrace" / "journal.mrj").read_bytes()
    output, at = (rerun / "hits.tsv").read_bytes(), 0
    for block in sorted(real, key=lambda block: int(block[0])):
        first, last, offset, length = map(int, block[:4])
        assert output[at : at + length] == journal[offset : offset + length]
        at += length
        head = HEAD.unpack(journal[offset - HEAD.size : offset])
        assert (head[0], head[1], head[4], head[5], head[8]) == (b"MRF1", 1, first, last, length)
    assert at == len(output)


def test_frame_of_the_page_decodes_to_its_table() -> None:
    (dump,) = [text for text in read_blocks("console") if " od " in text]
    lines = [line.partition(">")[0].split()[1:] for line in dump.splitlines()[1:]]
    head = bytes.fromhex("".join("".join(line) for line in lines))
    magic, kind, flags, stream, first, last, fragment, attempt, length, name, nothing, checksum = HEAD.unpack(head)
    assert (magic, checksum) == (b"MRF1", _core.crc32c(head[:-4]))
    numbers = ",".join(re.findall(r"^\| `[^|]*\| *(\d[\d, ]*)\|", PAGE, re.MULTILINE))
    values = [int(number) for number in numbers.split(",")]
    assert values == [kind, flags, stream, first, last, fragment, attempt, length, name]
    assert nothing == 0 and f"at byte {int(dump.split('-j ')[1].split()[0]) + HEAD.size}, {length} bytes" in PAGE


def test_modules_of_the_page_have_what_it_names() -> None:
    rows = re.findall(r"`([\w./-]+\.(?:py|rs)|crates/[\w./-]+)`(?::((?: `\w+`,?)+))?", PAGE)
    assert len(rows) > 25
    for name, words in rows:
        path = next((root / name for root in (REPO / "python" / "millrace", REPO) if (root / name).exists()), None)
        assert path, name
        for word in re.findall(r"\w+", words):
            assert re.search(rf"^\s*(?:def|class) {word}\b", path.read_text(), re.MULTILINE), f"{name}: no {word}"
