"""Differences of outputs that come bit by bit: the same result as of whole files, whoever is ahead."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from millrace.extensions.pack import difference, replay_diff
from millrace.extensions.pack.layout import PackSection, PackWriter, SectionKind, read_sections
from millrace.extensions.pack.replay_diff import StreamDiff


def pieces(pack: Path) -> list[PackSection]:
    return [section for section in read_sections(pack) if section.kind is SectionKind.DIFFERENCE]


def lines(rng: random.Random, n: int) -> list[bytes]:
    return [b"%d %s\n" % (number, rng.randbytes(rng.randrange(200)).hex().encode()) for number in range(n)]


def changed(rng: random.Random, text: list[bytes]) -> list[bytes]:
    found = []
    for line in text:
        match rng.randrange(60):
            case 0:
                found.append(b"another\n")
            case 1:
                found += [line, line]
            case 2:
                pass
            case _:
                found.append(line)
    return found


def bring(take: object, data: bytes, rng: random.Random) -> None:
    at = 0
    while at < len(data):
        size = rng.choice((1, 100, 70_000, 1 << 20))
        take(data[at : at + size])  # type: ignore[operator]
        at += size
    take(b"")  # type: ignore[operator]


@pytest.mark.parametrize("seed", range(6))
def test_stream_in_small_pieces_arrives_unchanged(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    # Small pieces, so that a small output has many.
    for name, size in (("PIECE_BYTES", 1 << 12), ("MAX_WAITING_BYTES", 1 << 16), ("MIN_AHEAD_BYTES", 3 << 12)):
        monkeypatch.setattr(replay_diff, name, size)
    theirs = lines(rng, rng.choice((0, 3, 3000)))
    ours = [theirs, changed(rng, theirs), lines(rng, 50), []][seed % 4]
    original, regenerated = b"".join(ours), b"".join(b"date: today\n" + line for line in theirs) + b"no end"
    writer = PackWriter(tmp_path / "pack")
    both = StreamDiff(writer, 0, [r"^date: .*\n"])
    other = threading.Thread(target=bring, args=(both.add_regenerated, regenerated, random.Random(seed)))
    other.start()
    bring(both.add_output, original, rng)
    other.join()
    writer.finish(lambda _: None)
    (tmp_path / "regenerated").write_bytes(regenerated)
    difference.strip_file(tmp_path / "regenerated", [r"^date: .*\n"], tmp_path / "stripped")
    difference.restore_outputs(
        pieces(tmp_path / "pack"), [tmp_path / "stripped"], [tmp_path / "again"], [len(original)]
    )
    assert (tmp_path / "again").read_bytes() == original


def test_failure_of_one_side_releases_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_diff, "MAX_WAITING_BYTES", 1000)
    writer = PackWriter(tmp_path / "pack")
    both = StreamDiff(writer, 0, [])
    failures: list[BaseException] = []

    def bring_ours() -> None:
        try:
            for _ in range(10):
                both.add_output(b"x" * 500)
        except OSError as error:
            failures.append(error)

    waiting = threading.Thread(target=bring_ours)
    waiting.start()
    both.abort_both_sides(OSError("gone"))
    waiting.join()
    writer.discard_unfinished()
    assert [str(error) for error in failures] == ["gone"]
