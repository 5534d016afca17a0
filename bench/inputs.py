"""Inputs of the wanted size, made from the test data: the same bytes at every run."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("MILLRACE_TEST_DATA") or REPO / ".tools" / "data")

AMINO = b"ACDEFGHIKLMNPQRSTVWY"
BASES = b"ACGT"

#: Letters that a copy changes: enough that no two copies are equal, few enough that homology stays.
CHANGED = 0.02


def records(path: Path) -> list[bytes]:
    """The records of a FASTA file."""
    return [b">" + part for part in path.read_bytes().split(b">")[1:]]


def copies(originals: list[bytes], number: int, letters: bytes) -> Iterator[bytes]:
    """``number`` records: the originals, then copies of them with other names and a few other letters."""
    rng = random.Random(1)
    for index in range(number):
        generation, which = divmod(index, len(originals))
        record = originals[which]
        yield mutated(record, generation, letters, rng) if generation else record


def mutated(record: bytes, generation: int, letters: bytes, rng: random.Random) -> bytes:
    """One record with another name and about `CHANGED` of its letters replaced."""
    header, _, body = record.partition(b"\n")
    name, space, rest = header.partition(b" ")
    text = bytearray(body)
    for _ in range(int(len(text) * CHANGED)):
        at = rng.randrange(len(text))
        if text[at : at + 1].isalpha():
            text[at] = rng.choice(letters)
    return name + f".{generation}".encode() + space + rest + b"\n" + bytes(text)


def split(parts: list[bytes], size: int, folder: Path) -> None:
    """Write ``parts`` into numbered files of ``size`` records each."""
    folder.mkdir()
    for number, first in enumerate(range(0, len(parts), size)):
        (folder / f"{number:06}.fa").write_bytes(b"".join(parts[first : first + size]))


def write_fasta(path: Path, size: int) -> int:
    """Write about ``size`` bytes of random proteins of usual lengths; returns the number of records."""
    rng = random.Random(2)
    pool = bytes(rng.choices(AMINO, k=1 << 20))
    written = number = 0
    with path.open("wb", buffering=1 << 20) as file:
        while written < size:
            length = min(int(rng.lognormvariate(5.7, 0.6)) + 30, 5000)
            at = rng.randrange(len(pool) - length)
            lines = [pool[k : k + 60] for k in range(at, at + length - length % 60, 60)] or [pool[at : at + 60]]
            written += file.write(b">protein_%d of the benchmark\n" % number + b"\n".join(lines) + b"\n")
            number += 1
    return number
