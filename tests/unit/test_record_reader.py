"""The reader of records: every byte once, whatever the format, compression and source."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace import _core
from millrace.core import record_formats
from millrace.core.errors import RefusedError

pytestmark = pytest.mark.process

#: For each format: whole records, in a form whose concatenation is cut back into them.
RECORDS: dict[str, list[bytes]] = {
    "fasta": [b">a b>c\nACGT\nAC\n", b">b\r\nAA\r\n", b">c\n", b">d\nMK*"],
    "fastq": [b"@a\nAC\n+\n@+\n", b"@b\nACG\nT\n+b\n+@I\nI\n", b"@c\n\n+\n\n", b"@d\nA\n+\nI"],
    "mol2": [b"# h\n@<TRIPOS>MOLECULE\na\n\n@<TRIPOS>ATOM\n", b"# c\n@<TRIPOS>MOLECULE\nb\n"],
    "sdf": [b"a\n\n\nM  END\n$$$$\n", b"\n\n\nM  END\n$$$$\n", b"c\n\n\nM  END\n"],
    "smiles": [b"CCO a\n", b"CC b\n# c\n", b"C c\n\n\n"],
    "hmm": [b"HMMER3/f\nNAME a\n//\n", b"HMMER3/f\nNAME b\n//\n\n"],
    "cm": [b"INFERNAL1/a\n//\nHMMER3/f\n//\n", b"INFERNAL1/a\n//\n"],
    "stockholm": [b"# STOCKHOLM 1.0\na AC\n//\n", b"\n# STOCKHOLM 1.0\nb AC\n//\n"],
    "genbank": [b"header\n\nLOCUS       A\n//\n", b"LOCUS       B\n//\n"],
    "pdbqt": [b"MODEL 1\nATOM\nENDMDL\n", b"MODEL 2\nATOM\nENDMDL\n"],
    "jsonl": [b'{"a": 1}\n', b"[]\n\n", b"3"],
    "csv": [b'a,"b\n",c\n', b"\n", b'"""\n",d\r\n', b"e"],
    "lines": [b"a\n", b"\n", b"b\r\n", b"c"],
    "nul": [b"a\nb\0", b"\0", b"c"],
    "regex": [b"ID a\nx\n", b"ID b\n"],
}

#: For each format with a header: that, and records.
BELOW_A_HEADER: dict[str, list[bytes]] = {
    "csv+header": [b'a,"b\n",c\n', b"\n", b'"""\n",d\r\n', b"e"],
    "lines+header": [b"a\n", b"\n", b"b\r\n", b"c"],
    "vcf": [b"##fileformat=VCFv4.2\n#CHROM\n", b"1\t2\n", b"1\t#\n"],
    "mgf": [b"# made\nCHARGE=2+\n\n", b"BEGIN IONS\n1.5 2\nEND IONS\n\n", b"BEGIN IONS\nEND IONS\n"],
}


def reader(paths: list[Path], record_format: str = "fasta") -> _core.Reader:
    pattern = "^ID " if record_format == "regex" else None
    return _core.Reader([str(path) for path in paths], record_format, record_start=pattern)


def cut_all(source: _core.Reader, dest: Path, *limits: int) -> Iterator[tuple[_core.Batch, bytes]]:
    while (batch := source.cut(str(dest), *limits)) is not None:
        yield batch, dest.read_bytes()
        dest.unlink()
    assert not dest.exists()
    assert source.at_end


@pytest.mark.parametrize("record_format", RECORDS)
def test_each_format_is_cut_into_its_records(record_format: str, tmp_path: Path) -> None:
    records = RECORDS[record_format]
    path = tmp_path / "input"
    path.write_bytes(b"".join(records))
    source = reader([path], record_format)
    assert (source.records, source.offset, source.total) == (0, 0, path.stat().st_size)
    cut = list(cut_all(source, tmp_path / "batch", 1, 0, 0))
    assert [data for _, data in cut] == records
    assert [batch.bytes for batch, _ in cut] == [len(record) for record in records]
    assert (source.records, source.offset) == (len(records), path.stat().st_size)
    if record_formats.FORMATS[record_format].unit == "bytes":
        assert [batch.cost for batch, _ in cut] == [len(record) for record in records]


@pytest.mark.parametrize("record_format", RECORDS)
def test_digest_of_a_record_is_that_of_its_bytes_alone(record_format: str, tmp_path: Path) -> None:
    """Wherever it stands in the input, compressed or not, and however it was read."""
    records = RECORDS[record_format]
    path = tmp_path / "input"
    alone = []
    for record in records:
        path.write_bytes(record)
        alone.append(reader([path], record_format).digest_records()[0])
    assert {len(digest) for digest in alone} == {16} and len(set(alone)) == len(set(records))
    path.write_bytes(gzip.compress(b"".join(records)))
    assert reader([path], record_format).digest_records()[0] == b"".join(alone)
    long = b">a\n" + b"ACGT" * 100_000 + b"\n"
    path.write_bytes(long + b">b\nAC\n" + long)
    found = reader([path]).digest_records()[0]
    assert found[:16] == found[32:] != found[16:32]


def test_digest_of_a_sequence_is_that_without_title(tmp_path: Path) -> None:
    """Line breaks and the place in the file do not matter; letters, their case and gap lines do."""
    path, long = tmp_path / "input", b"ACGT" * 100_000
    path.write_bytes(b"\n>a\r\nAC\r\nGT\n>b x\nACGT >\n>c\nAC\n>?5\nGT\n>d\nacGT\n>e\n" + long + b"\n>f\n" + long)
    records, sequences, n_sufficient = reader([path]).digest_records()
    found = [sequences[at : at + 16] for at in range(0, len(sequences), 16)]
    assert len(records) == len(sequences) and n_sufficient == 6 and found[4] == found[5]
    assert len(set(found)) == 5
    path.write_bytes(b">other name\nA\nC G\tT\n")
    assert reader([path]).digest_records()[1] == found[0]
    path.write_bytes(b"\n\n")
    assert reader([path]).digest_records()[1] == b""


def test_table_names_the_formats_of_the_reader(tmp_path: Path) -> None:
    assert RECORDS.keys() | BELOW_A_HEADER.keys() == record_formats.FORMATS.keys() - {"files"}
    assert {name for name, known in record_formats.FORMATS.items() if known.has_header} == BELOW_A_HEADER.keys()


@pytest.mark.parametrize("record_format", BELOW_A_HEADER)
def test_each_batch_starts_with_the_header(record_format: str, tmp_path: Path) -> None:
    header, *records = BELOW_A_HEADER[record_format]
    path = tmp_path / "input"
    path.write_bytes(b"".join([header, *records]))
    source = reader([path], record_format)
    assert (source.header, source.records) == (header, 0)
    cut = list(cut_all(source, tmp_path / "batch", 1, 0, 0))
    assert [data for _, data in cut] == [header + record for record in records]
    assert [(batch.header, batch.bytes, batch.cost) for batch, _ in cut] == [
        (len(header), len(record), len(record)) for record in records
    ]
    assert (source.records, source.offset) == (len(records), path.stat().st_size)


def test_a_header_has_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.vcf"
    path.write_bytes(b"##" + b"x" * (64 << 20) + b"\n1\n")
    with pytest.raises(_core.RecordError, match="the header is longer than 67108864 bytes"):
        reader([path], "vcf").cut(str(tmp_path / "batch"), 1, 0, 0)


def test_variants_are_named_by_name_and_first_line(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(BELOW_A_HEADER["vcf"][0]))
    assert record_formats.detect_format(str(path)) == record_formats.find_format_by_suffix("x.vcf.gz") == "vcf"


def test_cost_is_residues_and_limits_end_a_batch_when_reached(tmp_path: Path) -> None:
    path = tmp_path / "q.fa"
    path.write_bytes(b"".join(b">%d\n%b\n" % (n, b"A" * n) for n in range(1, 7)))
    dest = tmp_path / "batch"

    def batches(*limits: int) -> list[tuple[int, int, int]]:
        return [(cut.records, cut.cost, cut.largest) for cut, _ in cut_all(reader([path]), dest, *limits)]

    assert batches(0, 0, 0) == [(6, 21, 6)]
    assert batches(4, 0, 0) == [(4, 10, 4), (2, 11, 6)]
    assert batches(0, 6, 0) == [(3, 6, 3), (2, 9, 5), (1, 6, 6)]
    assert batches(0, 7, 0) == [(4, 10, 4), (2, 11, 6)]
    assert batches(0, 0, 6) == [(2, 3, 2), (1, 3, 3), (1, 4, 4), (1, 5, 5), (1, 6, 6)]
    assert batches(2, 6, 0) == [(2, 3, 2), (2, 7, 4), (2, 11, 6)]


def proteins(n: int) -> bytes:
    letters = random.Random(1)
    return b"".join(b">p%d\n%b\n" % (k, bytes(letters.choices(b"ACDEFGHIKLMNPQRSTVWY", k=200))) for k in range(n))


def zstd(data: bytes) -> bytes:
    return run_tool("zstd", data)


def bgzip(data: bytes) -> bytes:
    """Blocked gzip: members with an extra field, and the empty member that ends it."""
    end = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
    members = b""
    for at in range(0, len(data), 5000):
        body = gzip.compress(data[at : at + 5000], mtime=0)
        size = len(body) + 8 - 1
        extra = b"\x06\x00BC\x02\x00" + size.to_bytes(2, "little")
        members += body[:3] + b"\x04" + body[4:10] + extra + body[10:]
    return members + end


def run_tool(name: str, data: bytes) -> bytes:
    if shutil.which(name) is None:
        pytest.skip(f"{name}: not installed")
    return subprocess.run([name, "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "bgzip": bgzip, "zstd": zstd, "bzip2": bz2.compress, "xz": lzma.compress,
}  # fmt: skip


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("members", [1, 3])
def test_compressed_input_is_detected_by_its_bytes(codec: str, members: int, tmp_path: Path) -> None:
    data, path = proteins(300), tmp_path / "q.txt"
    size = len(data) // members + 1
    path.write_bytes(b"".join(COMPRESS[codec](data[at : at + size]) for at in range(0, len(data), size)))
    source = reader([path])
    assert b"".join(part for _, part in cut_all(source, tmp_path / "batch", 7, 0, 0)) == data
    assert source.offset == source.total == path.stat().st_size
    assert record_formats.detect_format(str(path)) == "fasta"


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("n_records", [3000, 60_000])
def test_the_part_of_a_compressed_file_that_was_read_is_known(codec: str, n_records: int, tmp_path: Path) -> None:
    """Of a small one too, though a decompressor takes all of it at once."""
    path = tmp_path / "q"
    path.write_bytes(COMPRESS[codec](b"".join(b">s%d\nMKVLAAAA\n" % n for n in range(n_records))))
    source, size, seen = reader([path]), path.stat().st_size, [0.0]
    for _, _ in cut_all(source, tmp_path / "batch", n_records // 10, 0, 0):
        seen.append(source.offset / size)
    assert seen == sorted(seen) and seen[-1] == 1.0
    assert 0.3 < seen[5] < 0.7 and 0.8 < seen[9] < 0.96, seen


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("members", [1, 2])
def test_truncated_compressed_data_is_an_error_at_every_byte(codec: str, members: int, tmp_path: Path) -> None:
    data, path = proteins(20), tmp_path / "q.gz"
    half = len(data) // 2
    parts = [data] if members == 1 else [data[:half], data[half:]]
    packed = [COMPRESS[codec](part) for part in parts]
    whole, last = b"".join(packed), len(packed[-1])
    at_end = range(len(whole) - min(last, 60), len(whole))
    seldom = range(12, len(whole) - last + 1 if members == 2 else len(whole), 97)
    # A file cut between two members is whole.
    whole_at = {sum(len(part) for part in packed[:n]) for n in range(members + 1)}
    ends = whole_at | ({len(whole) - 28} if codec == "bgzip" else set())
    for length in {*at_end, *seldom} - ends:
        path.write_bytes(whole[:length])
        source = reader([path])
        got = b""
        with pytest.raises(_core.RecordError, match=r"q\.gz: the .* data is (cut off|damaged)") as caught:
            while (batch := source.cut(str(tmp_path / "batch"), 3, 0, 0)) is not None:
                got += (tmp_path / "batch").read_bytes()
                (tmp_path / "batch").unlink()
                assert batch.records
        # What came before is whole records of the input.
        assert data.startswith(got) and (not got or data[len(got) : len(got) + 1] == b">")
        assert caught.value.source == str(path) and caught.value.record == source.records + 1
        assert not (tmp_path / "batch").exists()


def test_damaged_gzip_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "q.fa.gz"
    packed = bytearray(gzip.compress(proteins(50)))
    packed[-6] ^= 1
    path.write_bytes(packed)
    with pytest.raises(_core.RecordError, match="the gzip data is damaged"):
        list(cut_all(reader([path]), tmp_path / "batch", 0, 0, 0))


def test_fifo_pipe_and_standard_input(tmp_path: Path) -> None:
    data, fifo = proteins(500), tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(data,))
    writer.start()
    source = reader([fifo])
    assert source.total is None
    assert b"".join(part for _, part in cut_all(source, tmp_path / "batch", 9, 0, 0)) == data
    writer.join()
    script = (
        "import sys; from millrace import _core\n"
        "r = _core.Reader([sys.argv[1]], 'fasta')\n"
        "print(r.total, r.skip(10**9).crc32c, r.offset)"
    )
    path = tmp_path / "q.fa"
    path.write_bytes(data)
    crc = reader([path]).skip(10**9)
    assert crc is not None
    for name in "-", "/dev/fd/0":
        piped = subprocess.run([sys.executable, "-c", script, name], input=data, capture_output=True, check=True)
        assert piped.stdout.split() == [b"None", b"%d" % crc.crc32c, b"%d" % len(data)]
    with path.open("rb") as file:
        redirected = subprocess.run([sys.executable, "-c", script, "-"], stdin=file, capture_output=True, check=True)
    assert redirected.stdout.split()[0] == b"%d" % len(data)


def test_several_sources_are_one_stream(tmp_path: Path) -> None:
    data = [proteins(30), b"", gzip.compress(proteins(10)), b">x\nACGT", b">y\nAC\n"]
    paths = [tmp_path / f"{n}.fa" for n in range(len(data))]
    for path, part in zip(paths, data, strict=True):
        path.write_bytes(part)
    plain = data[0] + proteins(10) + data[3] + data[4]
    source = reader(paths)
    cut = list(cut_all(source, tmp_path / "batch", 0, 0, 0))
    assert b"".join(part for _, part in cut) == plain
    # The line without an end keeps >x and >y in two batches.
    assert [batch.records for batch, _ in cut] == [41, 1]
    assert source.offset == source.total == sum(len(part) for part in data)


def test_skip_resumes_and_detects_changed_input(tmp_path: Path) -> None:
    data, path, dest = proteins(100), tmp_path / "q.fa", tmp_path / "batch"
    path.write_bytes(data)
    first = [batch for batch, _ in cut_all(reader([path]), dest, 17, 0, 0)]
    again = reader([path])
    for batch in first[:3]:
        passed = again.skip(batch.records)
        assert passed is not None
        assert (passed.records, passed.bytes, passed.cost, passed.largest, passed.crc32c) == (
            batch.records, batch.bytes, batch.cost, batch.largest, batch.crc32c,
        )  # fmt: skip
    assert again.records == 51
    rest = b"".join(part for _, part in cut_all(again, dest, 0, 0, 0))
    assert rest == data[sum(batch.bytes for batch in first[:3]) :]
    assert again.skip(1) is None
    path.write_bytes(data.replace(b">p3\n", b">q3\n"))
    changed = reader([path]).skip(17)
    assert changed is not None and changed.crc32c != first[0].crc32c


def test_empty_input_has_no_records(tmp_path: Path) -> None:
    path, dest = tmp_path / "empty", tmp_path / "batch"
    path.touch()
    for record_format in RECORDS:
        source = reader([path], record_format)
        assert source.cut(str(dest), 0, 0, 0) is None
        assert source.skip(1) is None
        assert not dest.exists()


@pytest.mark.slow
def test_huge_record_does_not_need_its_size_in_memory(tmp_path: Path) -> None:
    script = """
import resource, sys
from millrace import _core
name, record_format, dest = sys.argv[1:]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
batch = _core.Reader([name], record_format).cut(dest, 1, 0, 0)
print(batch.records, batch.bytes, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    size = 300_000_000
    for record_format, head, line in (("fasta", b">a\n", b"ACGT" * 15 + b"\n"), ("sdf", b"a\n", b"A" * 61)):
        path, dest = tmp_path / "big", tmp_path / "batch"
        with path.open("wb") as file:
            file.write(head)
            for _ in range(size // 61_000_000 + 1):
                file.write(line * 1_000_000)
        ran = subprocess.run(
            [sys.executable, "-c", script, path, record_format, dest],
            capture_output=True, check=True, preexec_fn=limit_memory,
        )  # fmt: skip
        records, n_bytes, grown = map(int, ran.stdout.split())
        assert (records, n_bytes) == (1, path.stat().st_size) and n_bytes >= size
        assert dest.stat().st_size == n_bytes
        assert grown < 16
        path.unlink()
        dest.unlink()


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (200_000_000, 200_000_000))


def test_fastq_fault_names_place_and_read(tmp_path: Path) -> None:
    path, dest = tmp_path / "reads.fq", tmp_path / "batch"
    path.write_bytes(b"@r1\nAC\n+\nII\n@r2 x\nAC\nII\n@r3\nA\n+\nI\n")
    source = reader([path], "fastq")
    batch = source.cut(str(dest), 0, 0, 0)
    assert batch is not None and batch.records == 1
    assert dest.read_bytes() == b"@r1\nAC\n+\nII\n"
    dest.unlink()
    for _ in range(2):
        with pytest.raises(_core.RecordError) as caught:
            source.cut(str(dest), 0, 0, 0)
        assert str(caught.value) == f"{path}:7: expected '+' after the sequence of r2, found 'I'"
        assert (caught.value.source, caught.value.record, caught.value.line) == (str(path), 2, 7)
        assert not dest.exists()


def test_wrong_use_is_an_error(tmp_path: Path, full_disk: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    for arguments, words in (
        ({"format": "fastb"}, "unknown record format 'fastb'"),
        ({"format": "regex"}, "needs record_start"),
        ({"format": "regex", "record_start": "a("}, "record_start is no regular expression"),
        ({"format": "fasta", "record_end": "a"}, "belong to format regex"),
    ):
        with pytest.raises(ValueError, match=words.replace("(", r"\(")):
            _core.Reader([str(path)], **arguments)
    with pytest.raises(FileNotFoundError):
        reader([tmp_path / "missing"])
    path.write_text("a\n")
    with pytest.raises(FileNotFoundError):
        reader([path], "lines").cut(str(tmp_path / "no" / "batch"), 0, 0, 0)
    path.write_bytes(b"a" * 100_000)
    with pytest.raises(_core.DiskFull):
        reader([path], "lines").cut(str(full_disk), 0, 0, 0)


def test_properties_answer_while_another_thread_waits_for_input(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    source = reader([fifo], "lines")
    waiting = threading.Thread(target=source.cut, args=(str(tmp_path / "batch"), 0, 0, 0))
    waiting.start()
    with fifo.open("wb") as writer:
        writer.write(b"a\n")
        writer.flush()
        time.sleep(0.05)
        assert (source.records, source.offset, source.total) == (0, 0, None)
    waiting.join(300)
    assert (source.records, source.offset) == (1, 2)


def test_control_c_ends_the_wait_for_input() -> None:
    script = "from millrace import _core; r = _core.Reader(['-'], 'lines'); print(flush=True); r.skip(9)"
    for start in b"", b"a\n" * 20:
        command = [sys.executable, "-c", script]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        ) as waiting:
            assert waiting.stdin and waiting.stdout and waiting.stderr
            waiting.stdin.write(start[:17])
            waiting.stdout.readline()
            deadline = time.monotonic() + 300
            while waiting.poll() is None and time.monotonic() < deadline:
                waiting.send_signal(signal.SIGINT)
                time.sleep(0.1)
            assert waiting.wait(300) == -signal.SIGINT, waiting.stderr.read()


@pytest.mark.parametrize(
    ("name", "record_format", "n_records"),
    [
        ("proteins_queries.faa", "fasta", 500), ("contigs.fna", "fasta", 42), ("profiles.hmm", "hmm", 60),
        ("ligands.mol2", "mol2", 40), ("drugs.smi", "smiles", 40), ("1iep_receptor.pdbqt", "pdbqt", 1),
    ],
)  # fmt: skip
def test_real_data(name: str, record_format: str, n_records: int, data: Path, tmp_path: Path) -> None:
    path = data / name
    assert record_formats.detect_format(str(path)) == record_format
    source = reader([path], record_format)
    parts = [part for _, part in cut_all(source, tmp_path / "batch", 7, 0, 0)]
    assert b"".join(parts) == path.read_bytes()
    assert source.records == n_records


def test_mol2_with_comments_is_read_as_by_open_babel(data: Path, tmp_path: Path) -> None:
    """Blank lines, too."""
    if shutil.which("obabel") is None:
        pytest.skip("obabel: not installed")
    molecules = (data / "ligands.mol2").read_text().split("@<TRIPOS>MOLECULE\n")[1:6]
    head = "########## Name: n{0}\n##########  Score: -{0}\n\n@<TRIPOS>MOLECULE\n{1}\n"
    scored = [head.format(*molecule) for molecule in enumerate(molecules)]
    path, dest = tmp_path / "scored.mol2", tmp_path / "batch.mol2"
    path.write_text("# made by hand\n\n" + "".join(scored) + "# end\n")

    def obabel(name: Path) -> bytes:
        command = ["obabel", "-imol2", str(name), "-ac", "-osdf"]
        lines = subprocess.run(command, capture_output=True, check=True).stdout.splitlines(keepends=True)
        # The second line of a molecule holds the date.
        return b"".join(line for line in lines if not line.startswith(b" OpenBabel"))

    source = reader([path], "mol2")
    joined = b""
    while source.cut(str(dest), 1, 0, 0) is not None:
        joined += obabel(dest)
    assert joined == obabel(path)
    assert b"-4" in joined and source.records == 5


def test_detect_uses_the_name_except_for_text_and_sequences(tmp_path: Path) -> None:
    def detect(name: str, content: bytes) -> str | None:
        path = tmp_path / name
        path.write_bytes(content)
        return record_formats.detect_format(str(path))

    fasta, fastq = b">a\nAC\n", b"@a\nAC\n+\nII\n"
    assert detect("a.fa", fasta) == "fasta"
    assert detect("a.fasta", fastq) == "fastq"
    assert detect("a.fq.gz", gzip.compress(fasta)) == "fasta"
    assert detect("a.txt", fasta) == "fasta"
    assert detect("a.txt", b"CCO\n") == "lines"
    assert detect("A.SDF.GZ", b"CCO\n") == "sdf"
    assert detect("a.smi", b"CCO\n") == "smiles"
    assert detect("a.hmm", b"# STOCKHOLM 1.0\n") == "hmm"
    assert detect("noname", b"HMMER3/f [3.3.2 | Nov 2020]\n") == "hmm"
    assert detect("noname", b"what\n") is None
    assert record_formats.detect_format("-") is None
    assert record_formats.detect_format(str(tmp_path / "missing.faa")) == "fasta"


def test_parse_input_reads_a_format_suffix(tmp_path: Path) -> None:
    for name in "q.fa", "a:b", "odd:lines", "both", "both:lines":
        (tmp_path / name).touch()
    assert record_formats.parse_input("q.fa", tmp_path) == ("q.fa", "")
    assert record_formats.parse_input("q.fa:fastq", tmp_path) == ("q.fa", "fastq")
    assert record_formats.parse_input("missing.fa:fastq", tmp_path) == ("missing.fa", "fastq")
    assert record_formats.parse_input("-:lines", tmp_path) == ("-", "lines")
    assert record_formats.parse_input("a:b", tmp_path) == ("a:b", "")
    assert record_formats.parse_input("a:b:nul", tmp_path) == ("a:b", "nul")
    assert record_formats.parse_input("odd:lines", tmp_path) == ("odd:lines", "")
    assert record_formats.parse_input("both:lines", tmp_path) == ("both", "lines")
    assert record_formats.parse_input("missing:b", tmp_path) == ("missing:b", "")
    with pytest.raises(RefusedError, match="did you mean 'fasta'"):
        record_formats.parse_input("q.fa:fsta", tmp_path)
    with pytest.raises(RefusedError, match="did you mean 'smiles'"):
        record_formats.parse_input("-:smi", tmp_path)
    with pytest.raises(RefusedError, match="formats are fasta, fastq"):
        record_formats.parse_input("q.fa:", tmp_path)


CELLS = st.text(st.sampled_from("ab 1.,;\t\n\r\"'é-"), max_size=6)


@given(
    rows=st.lists(st.lists(CELLS, min_size=2, max_size=4), min_size=1, max_size=8), separator=st.sampled_from(",;\t"),
    end=st.sampled_from(["\n", "\r\n"]),
)  # fmt: skip
def test_quoted_rows_are_those_of_a_csv_writer(rows: list[list[str]], separator: str, end: str) -> None:
    """Whatever separates the cells, and whatever stands in them."""
    written = []
    for row in rows:
        csv.writer(one := io.StringIO(), delimiter=separator, lineterminator=end).writerow(row)
        written.append(one.getvalue().encode())
    with TemporaryDirectory() as folder:
        path, dest = Path(folder, "in"), Path(folder, "out")
        path.write_bytes(b"".join(written))
        assert [cut for _, cut in cut_all(reader([path], "csv"), dest, 1, 0, 0)] == written
