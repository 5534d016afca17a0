"""Periodic event traces: smaller than by zstd, and always what they were; others fall back, with the reason."""

from __future__ import annotations

import random
import shutil
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from clog2_files import solver
from hypothesis import given
from hypothesis import strategies as st
from in_process_cli import told

from millrace import _core
from millrace.cli.pack import command as pack
from millrace.cli.unpack import command as unpack
from millrace.extensions.pack import layout, pack_unpacker
from millrace.extensions.pack.result_codec import NotPackableError

np = pytest.importorskip("numpy")

#: What EZTrace 2.0 has written of one of two ranks of `bench/jacobi.c` with Open MPI 4.1: 400 iterations.
JACOBI = Path(__file__).resolve().parent / "jacobi_trace"


@pytest.fixture(scope="session")
def trace() -> bytes:
    """A trace of four ranks, each with 50 iterations of 40 events."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from bench.event_traces import Trace, text

    return text(Trace("four ranks", 4, 50, 0.02))


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def packed(name: str) -> tuple[str, str, int]:
    """Pack a file and unpack it: the same; what was said, the codec, and the bytes of the pack."""
    code, words = told(pack, name, "-o", "t.mrp")
    assert code == 0, words
    code, more = told(unpack, "t.mrp", "-o", "again")
    assert code == 0, more
    assert Path("again").read_bytes() == Path(name).read_bytes()
    return words, pack_unpacker.read_recipe(Path("t.mrp")).codec, Path("t.mrp").stat().st_size


def test_a_periodic_trace_is_three_times_smaller_than_by_zstd(tmp_path: Path, trace: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(trace)
    words, codec, size = packed("t.csv")
    assert codec == "trace" and "as a periodic trace" in words
    assert 3 * size < len(_core.squeeze(trace, 19))


def test_an_array_of_events_is_packed_as_a_trace(tmp_path: Path, trace: bytes) -> None:
    rows = [line.split(b",") for line in trace.splitlines()[1:]]
    kinds = [("time", "<f8"), ("rank", "u1"), ("size", ">i4"), ("wait", "<f4"), ("odd", "<f8"), ("leaves", "?")]
    events = [(float(r[0]), int(r[1]), int(r[5]), int(r[4]) / 4, 1 / (3 + int(r[1])), r[2] == b"LEAVE") for r in rows]
    np.save(tmp_path / "events.npy", np.array(events, dtype=kinds))
    np.save(tmp_path / "plain.npy", np.array([event[:3] for event in events]))
    for name in ("events.npy", "plain.npy"):
        _, codec, size = packed(name)
        assert codec == "trace"
        assert size < len(_core.squeeze((tmp_path / name).read_bytes(), 19))


def test_otf2_archive_is_packed_as_a_trace(tmp_path: Path) -> None:
    """The files beside its events are packed, too."""
    names = ["0.evt", "eztrace_log.def", "eztrace_log.otf2"]
    for name in names:
        shutil.copy(JACOBI / name, name)
    code, words = told(pack, *names, "-o", "t.mrp")
    assert code == 0 and "as a periodic trace" in words, words
    zstd = sum(len(_core.squeeze(Path(name).read_bytes(), 19)) for name in names)
    assert 2.2 * Path("t.mrp").stat().st_size < zstd
    again = [f"again-{name}" for name in names]
    code, words = told(unpack, "t.mrp", *(word for name in again for word in ("-o", name)))
    assert code == 0, words
    assert [Path(name).read_bytes() for name in again] == [Path(name).read_bytes() for name in names]


@given(st.data())
def test_arbitrary_otf2_events_round_trip(data: st.DataObject) -> None:
    from millrace.extensions.pack import trace_tables

    whole = (JACOBI / "0.evt").read_bytes()[:2000]
    begin = data.draw(st.integers(0, len(whole)))
    mixed = whole[:begin] + data.draw(st.binary(max_size=40)) + whole[begin + data.draw(st.integers(0, 40)) :]
    try:
        tables = list(trace_tables.read_otf2_tables(BytesIO(mixed)))
    except NotPackableError:
        return
    assert b"".join(map(trace_tables.encode_table, tables)) == mixed


def test_truncated_otf2_trace_is_packed_unchanged() -> None:
    Path("cut.evt").write_bytes((JACOBI / "0.evt").read_bytes()[:-4])
    said, codec, _ = packed("cut.evt")
    assert codec == "zstd" and "its last event is cut off" in said


@pytest.mark.parametrize(
    "form", [{}, {"block_bytes": 2048, "big_endian": False}], ids=["as MPE merges it", "of one process"]
)
def test_clog2_trace_is_packed_twice_as_small(form: dict[str, Any]) -> None:
    """Also blocks whose rest is what their memory held before, and the table of communicators behind them."""
    whole = solver(4, 300, **form)
    Path("t.clog2").write_bytes(whole)
    words, codec, size = packed("t.clog2")
    assert codec == "trace" and "as a periodic trace" in words
    assert 2 * size < len(_core.squeeze(whole, 19))


def test_damaged_clog2_trace_is_packed_unchanged() -> None:
    whole = solver(2, 40, block_bytes=2048)
    damaged = {
        "its last block is cut off": whole[:-3000],
        "its preamble is not": whole[:900],
        "its blocks are not": whole[:1024] + whole[1030:],
    }
    for reason, content in damaged.items():
        Path("t.clog2").write_bytes(content)
        said, codec, _ = packed("t.clog2")
        assert codec == "zstd" and reason in said, said


@given(st.data())
def test_arbitrary_clog2_records_round_trip(data: st.DataObject) -> None:
    from millrace.extensions.pack import trace_tables

    whole = solver(2, 12, block_bytes=1024)
    begin = data.draw(st.integers(1024, len(whole)))
    mixed = whole[:begin] + data.draw(st.binary(max_size=40)) + whole[begin + data.draw(st.integers(0, 40)) :]
    try:
        tables = list(trace_tables.read_clog2_tables(BytesIO(mixed)))
    except NotPackableError:
        return
    assert b"".join(each if isinstance(each, bytes) else trace_tables.encode_table(each) for each in tables) == mixed


def test_period_within_a_period_makes_the_pack_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few iterations, each with loops: the first one is packed as the first turn of its loop and what others differ by."""
    from millrace.extensions.pack import trace_codec

    Path("t.clog2").write_bytes(solver(1, 4, inner=60))
    _, codec, nested = packed("t.clog2")
    assert codec == "trace"
    monkeypatch.setattr(trace_codec, "MAX_NESTED", 1)
    _, codec, flat = packed("t.clog2")
    assert nested < 0.95 * flat


def test_many_pieces_are_packed_in_their_order(trace: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    from millrace.extensions.pack import trace_tables

    monkeypatch.setattr(trace_tables, "PIECE_BYTES", len(trace) // 4)
    for name, whole in (("t.csv", trace), ("t.clog2", solver(2, 400, block_bytes=4096))):
        Path(name).write_bytes(whole)
        assert packed(name)[1] == "trace"
        sections = list(layout.read_sections(Path("t.mrp")))
        assert len(sections) > 4


def test_aperiodic_trace_falls_back_with_the_reason(tmp_path: Path) -> None:
    chance = random.Random(1)
    rows = [(chance.randrange(10**9), chance.choice("abcdefgh"), chance.randrange(10**6)) for _ in range(2000)]
    texts = {
        "no period": "".join(f"{a},{b},{c}\n" for a, b, c in rows),
        "neither text in columns": "word\nword\nword\n" * 50,
        "the same columns": "a,b\n1,2\n3\n",
        "more bytes than by zstd": "n,m\n" + "1,2\n2,1\n" * 4,
    }
    for words, text in texts.items():
        (tmp_path / "log").write_text(text)
        said, codec, _ = packed("log")
        assert codec == "zstd" and "compressed with zstd" in said
        assert "hint: a result of BLAST+ or HMMER gets far smaller with the command that wrote it" in said
        assert words in said


def test_missing_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name, words in (("nodir", "no such file, run directory or program"), ("folder", "no run directory")):
        code, said = told(pack, name, "-o", "t.mrp")
        assert code == 2
        assert f"{name}: " in said and words in said and "hint: name a run directory" in said
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_numpy_is_imported_only_when_needed(tmp_path: Path, trace: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_bytes(trace[:20_000])
    assert packed("t.csv")[1] == "trace"
    for module in ("trace_codec", "trace_tables"):
        monkeypatch.delitem(sys.modules, f"millrace.extensions.pack.{module}")
    monkeypatch.setitem(sys.modules, "numpy", None)
    code, words = told(unpack, "t.mrp", "-o", "again")
    assert (code, "millrace[trace]" in words) == (2, True), words
    code, words = told(pack, "t.csv", "-o", "plain.mrp")
    assert (code, "compressed with zstd: " in words, "numpy" in words) == (0, True, True), words
