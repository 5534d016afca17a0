"""What every codec of packs owes, whatever it packs.

A new codec of files is one more name in `FILE_CODECS`, one of results one more of `RESULTS`; what the latter owe with real tools, each
result of `tests/pack/test_pack.py` shows.
"""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.adapters.registry import MODULES
from millrace.core.errors import CorruptError, MillraceError
from millrace.extensions.pack import difference, pack_unpacker, result_codec, result_files
from millrace.extensions.pack.difference import FileCodec
from millrace.extensions.pack.layout import MAX_SECTION_BYTES
from millrace.extensions.pack.result_codec import NotPackableError, ResultCodec

FILE_CODECS = ("zstd", "trace")

RESULTS = ("blast", "hmmer")

_LINE = "{0}.{1:06d},{2},step,{3}\n"

#: Files that are not what a codec waits for, or hardly.
AWKWARD: dict[str, bytes] = {
    "nothing": b"",
    "one byte": b"\n",
    "one line": b"time,rank,event,size\n",
    "no last end of line": "".join(_LINE.format(k, k * 7, k % 4, 8) for k in range(99)).encode()[:-1],
    "ends of DOS": "".join(_LINE.format(k, k * 7, k % 4, 8) for k in range(99)).replace("\n", "\r\n").encode(),
    "empty lines": b"a,b\n" + b"1,2\n3,4\n\n" * 40,
    "fields that are hardly numbers": b"a,b\n" + b"1,-0\n01,+1\n1.50,1e3\n-0.0,.5\n1.,0x1\n" * 40,
    "numbers as large as they get": b"a,b\n"
    + b"9223372036854775807,-9223372036854775808\n-999999999999999999,1\n" * 40,
    "bytes of no text": bytes(range(256)) * 9,
    "empty fields": b"a,b\n" + b",\n1,\n,2\n" * 40,
    "a header of an array, and no array": b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False}",
    "always the same": b"a,b\n" + b"1,x\n" * 400,
}


def codec_of_files(name: str) -> FileCodec:
    if name == "trace":
        pytest.importorskip("numpy")
    found = difference.find_file_codec(name)
    assert isinstance(found, FileCodec)
    return found


def come_back(owed: FileCodec, path: Path) -> list[bytes]:
    """The pieces of a file, out of which it comes again; none if the codec does not take it."""
    try:
        pieces = list(owed.encode(path))
    except NotPackableError as error:
        assert str(error)
        return []
    assert all(len(piece) <= MAX_SECTION_BYTES for piece in pieces)
    assert b"".join(map(owed.decode, pieces)) == path.read_bytes()
    return pieces


@pytest.mark.parametrize("name", FILE_CODECS)
def test_awkward_files_round_trip_or_are_declined(name: str, tmp_path: Path) -> None:
    owed = codec_of_files(name)
    for number, data in enumerate(AWKWARD.values()):
        (tmp_path / f"{number}").write_bytes(data)
        come_back(owed, tmp_path / f"{number}")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, range(len(AWKWARD))))


FIELDS = st.sampled_from([b"0", b"1", b"-7", b"12.5", b"12.25", b"99999999999", b"x", b"y z", b"", b"\xff", b"-0"])


@pytest.mark.parametrize("name", FILE_CODECS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    rows=st.lists(st.tuples(FIELDS, FIELDS, FIELDS), min_size=2, max_size=6), times=st.integers(1, 9), end=st.booleans()
)
def test_any_columns_round_trip_or_are_declined(
    name: str, rows: list[tuple[bytes, ...]], times: int, end: bool, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(b"\n".join(b",".join(row) for row in rows * times) + b"\n" * end)
    come_back(codec_of_files(name), tmp_path / "log")


@pytest.mark.parametrize("name", FILE_CODECS)
def test_altered_pieces_are_refused_or_decode_bounded(name: str, tmp_path: Path) -> None:
    """Nothing else comes of them: no other error, no file, no more bytes than a pack may have."""
    owed, chance = codec_of_files(name), random.Random(1)
    source = tmp_path / "log"
    source.write_text("t,r,e\n" + "".join(f"{k}.{k % 7:03d},{k % 4},{'abcd'[k % 4]}\n" for k in range(400)))
    (piece,) = come_back(owed, source)
    for _ in range(300):
        text = bytearray(piece)
        for _ in range(chance.randrange(1, 4)):
            text[chance.randrange(min(len(text), chance.choice((40, 400, 1 << 20))))] = chance.randrange(256)
        data = bytes(text[: chance.choice((len(text), chance.randrange(len(text))))])
        with suppress(CorruptError):
            assert len(owed.decode(data)) <= 2 * MAX_SECTION_BYTES
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_each_codec_is_in_the_contract() -> None:
    for name in RESULTS:
        assert isinstance(result_codec.find_result_codec(name), ResultCodec)
    assert {name for name in set(MODULES.values()) if result_codec.find_result_codec(name)} == set(RESULTS)


def test_a_damaged_pack_of_any_codec_is_refused(tmp_path: Path) -> None:
    chance = random.Random(2)
    for data in AWKWARD.values():
        (tmp_path / "log").write_bytes(data)
        result_files.pack_traces_or_plain([tmp_path / "log"], tmp_path / "p.mrp")
        text = (tmp_path / "p.mrp").read_bytes()
        for _ in range(20):
            spoilt = bytearray(text)
            spoilt[chance.randrange(len(text))] ^= 1 << chance.randrange(8)
            (tmp_path / "p.mrp").write_bytes(spoilt[: chance.choice((len(text), chance.randrange(len(text))))])
            with pytest.raises(MillraceError):
                pack_unpacker.read_recipe(tmp_path / "p.mrp")
