"""``pack --trust`` and ``--effort``: how much the packer, and who unpacks, regenerate."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_pack import RESULTS, ask, blastp_6, link, own, tools, unpack  # noqa: F401 (fixtures)

from millrace.extensions.pack import pack_unpacker, regeneration_trial

COMMAND = shlex.split(RESULTS["blastp-6"][0])


@pytest.fixture
def result(blastp_6: Path, tmp_path: Path) -> Iterator[Path]:  # noqa: F811
    yield link(blastp_6, tmp_path)


def pack(folder: Path, *options: str) -> str:
    told = ask(folder, "pack", "-o", "other.mrp", "--batch", "3", *options, "--", *COMMAND)
    assert told.returncode == 0, told.stderr
    (folder / "result.mrp").unlink()
    (folder / "other.mrp").rename(folder / "result.mrp")
    return told.stderr


def test_a_trusted_result_unpacks_to_the_original(result: Path) -> None:
    assert "trusted the rest" in pack(result, "--trust")
    assert pack_unpacker.read_recipe(result / "result.mrp").codec == "blast"
    told = unpack(result, "blastp-6")
    assert told.returncode == 0, told.stderr
    assert (result / "again-out").read_bytes() == (result / "out").read_bytes()


@pytest.mark.slow
def test_result_with_another_start_is_not_trusted(result: Path) -> None:
    text = own(result / "out")
    (result / "out").write_bytes(b"# mine\n" + text)
    assert "regenerating all" in pack(result, "--trust")
    told = unpack(result, "blastp-6")
    assert told.returncode == 0, told.stderr
    assert (result / "again-out").read_bytes() == b"# mine\n" + text


@pytest.mark.slow
def test_wrong_trust_is_detected_when_unpacking(result: Path) -> None:
    lines = own(result / "out").splitlines(keepends=True)
    lines[-1] = lines[-1].replace(b"\t", b"\t ", 1)
    (result / "out").write_bytes(b"".join(lines))
    pack(result, "--trust")
    told = unpack(result, "blastp-6")
    assert told.returncode == 5
    assert "nothing is written" in told.stderr or "shorter than" in told.stderr
    assert not (result / "again-out").exists()


@pytest.mark.slow
def test_regeneration_over_the_effort_limit_is_compressed(result: Path) -> None:
    assert "more than the 0 s of --effort" in pack(result, "--effort", "0")
    assert pack_unpacker.read_recipe(result / "result.mrp").codec == "zstd"
    told = ask(result, "unpack", "result.mrp", "-o", "again-out")
    assert told.returncode == 0, told.stderr
    assert (result / "again-out").read_bytes() == (result / "out").read_bytes()
    pack(result, "--effort", "100000")
    assert pack_unpacker.read_recipe(result / "result.mrp").codec == "blast"


@pytest.mark.parametrize(
    ("whole", "some", "expected"),
    [
        (b"head 1 2 3 4 5 foot", b"head 1 2 foot", True),
        (b"head 1 2 3 4 5", b"head 1 2", True),
        (b"head 1 2 3 4 5 foot", b"head 1 2 feet", False),  # it ends otherwise
        (b"Head 1 2 3 4 5 foot", b"head 1 2 foot", False),  # it begins otherwise
        (b"h 1 2 3 4 a long foot", b"h a long foot", False),  # too little tells
        (b"head 1", b"head 1 2 3", False),
        (b"head 1 foot", b"head 1 foot", True),
        (b"123", b"", False),
        (b"", b"", False),
    ],
)
def test_trust_compares_both_ends_of_a_result(tmp_path: Path, whole: bytes, some: bytes, expected: bool) -> None:
    (tmp_path / "whole").write_bytes(whole)
    (tmp_path / "some").write_bytes(some)
    assert regeneration_trial.has_matching_ends(tmp_path / "whole", tmp_path / "some") is expected
