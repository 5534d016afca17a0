"""A compressed input of a program that is not known: the bytes of the serial command, or a refusal."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path

import pytest
from parameter_choice import some
from shell import Shell
from test_folder_view import PLACES

#: Where no overlay can be had.
NO_VIEW = PLACES["no user namespaces"]

#: (ending, what packs, how Python opens it) of each compression.
PACKED = {
    "gzip": ("gz", "gzip -c", "gzip.open"),
    "bzip2": ("bz2", "bzip2 -c", "bz2.open"),
    "xz": ("xz", "xz -c", "lzma.open"),
    "zstd": ("zst", "zstd -qc", "(lambda path: subprocess.Popen(['zstdcat', path], stdout=subprocess.PIPE).stdout)"),
}

SCRIPT = """import bz2, gzip, lzma, subprocess, sys
for line in {}(sys.argv[1]):
    if line.startswith(b">"):
        print(line[1:].decode().strip(), "in", sys.argv[1])
"""


@pytest.fixture
def packed(shell: Shell) -> Shell:
    shell.run('for i in $(seq 3000); do echo ">s$i"; echo MKVLA; done > q.fa')
    return shell


@pytest.mark.slow
@pytest.mark.parametrize("compression", some(PACKED, "gzip", "zstd"))
def test_script_that_unpacks_its_input_writes_serial_bytes(packed: Shell, compression: str) -> None:
    end, pack, opens = PACKED[compression]
    (packed.work / "some.py").write_text(SCRIPT.format(opens))
    serial = packed.run(f"{pack} q.fa > q.fa.{end}; python3 some.py q.fa.{end}")
    ended = packed.run(f"millrace run --input q.fa.{end} -- python3 some.py q.fa.{end}")
    assert ended.code == 0 and ended.out == serial.out, ended.shown
    assert f"q.fa.{end} is compressed ({compression}): python3 gets its parts so, too" in ended.err
    assert "of 3,000 records cut elsewhere, all bytes equal" in ended.err, ended.shown
    ended = packed.run(f"millrace run -q --format fasta -- sh -c '{pack.split()[0]} -dc' < q.fa.{end} | cmp - q.fa")
    assert ended.code == 0, ended.shown


@pytest.mark.parametrize("compression", PACKED)
@pytest.mark.parametrize("n_records", [1, 3000])
def test_script_that_does_not_unpack_its_input_is_refused(packed: Shell, compression: str, n_records: int) -> None:
    """Of one record, too, which is one task: it is compressed to other bytes when it is run again."""
    end, pack, _ = PACKED[compression]
    ended = packed.run(
        f"head -n {2 * n_records} q.fa | {pack} > q.fa.{end}; "
        f"millrace run --input q.fa.{end} --output o -- sh -c 'cat $1 > $2' x q.fa.{end} o"
    )
    assert ended.code == 5, ended.shown
    assert f"the tool does not unpack its input, which is compressed ({compression})" in ended.err, ended.shown
    assert f"cat q.fa.{end} | millrace run --format fasta -- ..." in ended.err, ended.shown
    assert not (packed.work / "o").exists(), "what was written is taken back"


def test_compressed_pipe_is_refused_before_a_tool_starts(packed: Shell) -> None:
    """That a pipe is compressed is seen only when it is read, after the plan."""
    ended = packed.run("gzip -c q.fa | millrace run --format fasta -- sh -c 'echo >> started; zcat'")
    assert ended.code == 2 and not ended.out, ended.shown
    assert "standard input is compressed (gzip), which could not be seen before the start" in ended.err, ended.shown
    assert "as by zcat, or name a file" in ended.err and not (packed.work / "started").exists(), ended.shown


def test_a_small_compressed_file_has_no_more_tasks_than_it_needs(packed: Shell) -> None:
    """A decompressor takes all of it before it gives its first byte: that is no end of the input."""
    ended = packed.run(
        "for i in 1 2 3 4; do cat q.fa; done | gzip > q.fa.gz; millrace run --keep-run-dir --run-dir r --input q.fa.gz -- sh -c 'zcat $1 | grep V' x q.fa.gz"
    )
    assert ended.code == 0, ended.shown
    events = [json.loads(line) for line in (packed.work / "r" / "events.jsonl").read_text().splitlines()]
    assert 0 < sum(each["event"] == "task" for each in events) < 300


@pytest.mark.parametrize("given", ["--input q.fa.gz -- sh -c '{}' x q.fa.gz", "--format fasta -- sh -c '{}' < q.fa.gz"])
def test_failed_record_is_kept_as_the_program_reads_it(packed: Shell, given: str) -> None:
    script = 'zcat "$@" | sed "/s77$/q3"'
    ended = packed.run(f"gzip -k q.fa; millrace run --retries 0 --run-dir r {given.format(script)} > o")
    assert ended.code == 3, ended.shown
    assert "records      2,999 records" in ended.err, ended.shown
    again = packed.run("r/quarantine/record-77/command.sh")
    assert (again.code, again.out) == (3, ">s77\n"), again.shown


def test_it_keeps_its_name_and_place(packed: Shell) -> None:
    """What a script makes of the name, or finds beside it, is what it makes of it by itself."""
    (packed.work / "sub").mkdir()
    script = "sample=${1%%.*}; zcat sub/q.fa.gz | grep '>' | sed \"s|^|$sample $(cat $1.ids) |\""
    (packed.work / "name.sh").write_text(script)
    serial = packed.run("gzip -c q.fa > sub/q.fa.gz; echo ids > sub/q.fa.gz.ids; sh name.sh sub/q.fa.gz")
    ended = packed.run("millrace run -q --input sub/q.fa.gz -- sh name.sh sub/q.fa.gz")
    assert serial.out.startswith("sub/q ids >s1\n") and (ended.code, ended.out) == (0, serial.out), ended.shown


@pytest.mark.parametrize("path", ["$PWD/q.fa", "sub/../q.fa"])
def test_rewritten_path_is_restored_whole_or_not_at_all(packed: Shell, path: str) -> None:
    (packed.work / "sub").mkdir()
    (packed.work / "whole.sh").write_text("""grep '>' "$1" | sed "s|^|$1: |\"""")
    serial = packed.run(f"sh whole.sh {path}")
    ended = packed.run(f"millrace run -q --input {path} -- sh whole.sh {path}")
    assert serial.code == 0 and (ended.code, ended.out) == (0, serial.out), ended.shown
    (packed.work / "piece.sh").write_text('echo "${1%.fa}"; grep ">" "$1"')
    # Where the working folder is seen as it is, there is no private path.
    ended = packed.run(f"{NO_VIEW} millrace run --verify 0 --input {path} -- sh piece.sh {path}")
    assert ended.code == 1 and "printed its private directory in a form that" in ended.err, ended.shown
    assert "by paths below the working directory" in ended.err, ended.shown


FIRST_MEMBER = (
    "import sys, zlib\nsys.stdout.buffer.write(zlib.decompressobj(31).decompress(open(sys.argv[1], 'rb').read()))"
)


@pytest.mark.slow
def test_reader_of_first_gzip_member_alone_is_detected(packed: Shell) -> None:
    """A file of one member is right; with more members the check differs."""
    (packed.work / "first.py").write_text(FIRST_MEMBER)
    packed.run("gzip -c q.fa > one.fa.gz; cat one.fa.gz one.fa.gz > two.fa.gz")
    ended = packed.run("millrace run -q --input one.fa.gz -- python3 first.py one.fa.gz | cmp - q.fa")
    assert ended.code == 0, ended.shown
    ended = packed.run("millrace run -q --input two.fa.gz -- python3 first.py two.fa.gz")
    assert ended.code == 5, ended.shown


@pytest.mark.slow
def test_blocked_gzip_stays_so(packed: Shell) -> None:
    (packed.work / "q.fa.bgz").write_bytes(bgzip((packed.work / "q.fa").read_bytes()))
    (packed.work / "blocked.sh").write_text('[ "$(head -c 14 $1 | tail -c 2)" = BC ] && gzip -dc < $1')
    ended = packed.run("millrace run --input q.fa.bgz -- sh blocked.sh q.fa.bgz | cmp - q.fa")
    assert ended.code == 0 and "q.fa.bgz is compressed (bgzf)" in ended.err, ended.shown
    (packed.work / "first.py").write_text(FIRST_MEMBER)
    ended = packed.run("millrace run -q --input q.fa.bgz -- python3 first.py q.fa.bgz")
    assert ended.code == 5, "it reads the first block alone"


def bgzip(data: bytes) -> bytes:
    """As bgzip does it; SAM format specification, 4.1."""
    blocks = []
    for at in [*range(0, len(data), 5000), len(data)]:
        block = zlib.compress(data[at : at + 5000], wbits=-15)
        tail = struct.pack("<II", zlib.crc32(data[at : at + 5000]), len(data[at : at + 5000]))
        blocks.append(
            b"\x1f\x8b\x08\x04"
            + bytes(5)
            + b"\xff\x06\x00BC\x02\x00"
            + struct.pack("<H", len(block) + 25)
            + block
            + tail
        )
    return b"".join(blocks)


def test_an_empty_one_is_the_file_itself(packed: Shell) -> None:
    ended = packed.run("gzip < /dev/null > e.fa.gz; millrace run -q --input e.fa.gz -- cat e.fa.gz | cmp - e.fa.gz")
    assert ended.code == 0, ended.shown


JOB = """
[phase.a]
filter = "gzip -n"
input = "q.fa"
output = "q.fa.gz"
[phase.b]
command = "sh -c 'zcat $1 > $2' x q.fa.gz o"
input = "q.fa.gz"
output = "o"
"""


def test_compressed_file_of_another_phase_is_read(packed: Shell) -> None:
    (packed.work / "job.toml").write_text(JOB)
    ended = packed.run("millrace run job.toml && cmp o q.fa")
    assert ended.code == 0, ended.shown


@pytest.mark.parametrize("tool", ["seqkit fx2tab", "hmmscan --noali p.hmm"])
@pytest.mark.parametrize(
    "make", ["gzip > k.fa.gz", "gzip > k.fa", "cat > k.fa.gz", "xz > k.fa.xz", "zstd -q > k.fa.zst", "bzip2 > k.bz2"]
)
def test_known_tool_unpacks_the_formats_that_it_reads(packed: Shell, data: Path, tool: str, make: str) -> None:
    """Other compressions are refused or end the run, without output."""
    if missing := [name for name in ("seqkit", "hmmscan") if not shutil.which(name)]:
        pytest.skip(f"{missing[0]} is not installed")
    shutil.copy(data / "profiles.hmm", packed.work / "p.hmm")
    name = make.rpartition(" ")[2]
    serial = packed.run(f"hmmpress p.hmm > pressed; head -n 60 q.fa | {make}; {tool} {name}")
    ended = packed.run(f"millrace run -q -- {tool} {name}")
    if serial.code == 0:
        assert ended.code == 0 and _steady(ended.out) == _steady(serial.out) != [], ended.shown
    else:
        assert ended.code in (2, 4) and not ended.out, ended.shown


def _steady(report: str) -> list[str]:
    """Without lines about time, threads and file names, and the order in which the last two were given."""
    return [line for line in report.splitlines() if not line.startswith("#")]
