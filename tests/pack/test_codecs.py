"""What every codec owes, and how others' are found."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.errors import RefusedError
from millrace.extensions.pack import blast_codec, hmmer_codec, regeneration_trial, result_codec
from millrace.extensions.pack.result_codec import QueryBatch, ResultCodec

OWN = {"blast": blast_codec.CODEC, "hmmer": hmmer_codec.CODEC}


@pytest.mark.parametrize("name", OWN)
def test_codec_is_chosen_by_the_name_of_its_adapter(name: str) -> None:
    found = result_codec.find_result_codec(name)
    assert found is OWN[name]
    assert isinstance(found, ResultCodec)


def test_other_tools_have_no_codec() -> None:
    assert result_codec.find_result_codec("muscle") is None


def test_entry_point_overrides_the_built_in_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint(name="blast", value="millrace.extensions.pack.hmmer_codec:CODEC", group=result_codec.GROUP)
    monkeypatch.setattr(result_codec, "entry_points", lambda **wanted: [point] if wanted["name"] == "blast" else [])
    assert result_codec.find_result_codec("blast") is hmmer_codec.CODEC
    assert result_codec.find_result_codec("hmmer") is hmmer_codec.CODEC


def batches(*names: bytes) -> list[QueryBatch]:
    return [QueryBatch(at, at + 1, (0, 0), (name,)) for at, name in enumerate(names)]


@pytest.mark.parametrize(
    ("outfmt", "text", "words"),
    [
        ("6", b"a\ts1\t1\nc|d\ts2\t1\nc|d\ts3\t1\n", [{b"s1"}, set(), {b"s2", b"s3"}]),
        ("6 sseqid evalue qseqid", b"s1\t1\ta\ns2\t1\tb\n", [{b"s1"}, {b"s2"}, set()]),
        ("7", b"# BLASTP\n# Query: a\ns\ts1\n# Query: b\n# Query: c|d\nc\ts2\n", [{b"s1"}, set(), {b"s2"}]),
        (
            "5",
            b"<Iteration>\n<Hit_id>s1</Hit_id>\n<Hit_def>n1 t</Hit_def>\n<Iteration>\n<Iteration>\n",
            [{b"s1", b"n1"}, set(), set()],
        ),
        (
            "0",
            b"Database: x\nQuery= a\n\ns1 t\n> s2 t\nQuery  1 K\nQuery= b\nQuery= c\nSbjct 1 K\n",
            [{b"s1", b"s2"}, set(), set()],
        ),
        ("6 evalue", b"1\n", None),
        ("15", b"{}", None),
        # One query more, and one less, than there are.
        ("7", b"# Query: a\n# Query: b\n# Query: c|d\n# Query: e\n", None),
        ("7", b"# Query: a\n# Query: b\n", None),
        ("6", b"c|d\ts1\na\ts1\n", None),
    ],
)
def test_subjects_are_listed_per_query(
    tmp_path: Path, outfmt: str, text: bytes, words: list[set[bytes]] | None
) -> None:
    (tmp_path / "out").write_bytes(text)
    found = blast_codec.read_named_words(["blastp", "-outfmt", outfmt], tmp_path / "out", batches(b"a", b"b", b"c|d"))
    assert found == words


@pytest.mark.parametrize("bandwidth", ["", "0", "-1", "fast", "1T", "1 M"])
def test_invalid_bandwidth_is_refused(bandwidth: str) -> None:
    with pytest.raises(RefusedError):
        regeneration_trial.parse_bandwidth(bandwidth)


@given(*(st.floats(0.001, 1e6) for _ in range(4)), st.integers(0, 1 << 50), st.integers(0, 1 << 50))
def test_packing_pays_if_the_inequality_holds(
    before: float, after: float, bandwidth: float, early: float, whole: int, small: int
) -> None:
    other, packed = (
        regeneration_trial.TransferMethod("other", whole, early),
        regeneration_trial.TransferMethod("packed", small, before, after),
    )
    spent = before + after - early
    if abs(whole - small - bandwidth * spent) > 1e-6 * (whole + small + bandwidth * (before + after + early)):
        pays = whole - small > bandwidth * spent
        assert (packed.estimate_seconds(bandwidth) < other.estimate_seconds(bandwidth)) == pays
        assert regeneration_trial.choose_fastest_transfer([other, packed], bandwidth) is (packed if pays else other)
        if whole > small and spent > 0:
            assert (bandwidth < regeneration_trial.compute_break_even_bandwidth(other, packed)) == pays
