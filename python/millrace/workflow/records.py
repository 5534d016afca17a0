"""Record cutting for Python functions between two phases, from blocks of bytes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from millrace import formats
from millrace.errors import RefusedError

#: Beginning of the first, or of the last, line of a record, by format.
STARTS = {"fasta": b">", "mol2": b"@<TRIPOS>MOLECULE", "genbank": b"LOCUS", "cm": b"INFERNAL1/"}
ENDS = {"hmm": b"//", "stockholm": b"//", "sdf": b"$$$$", "pdbqt": b"ENDMDL"}
LINES = ("lines", "jsonl", "smiles")
KNOWN = {*STARTS, *ENDS, *LINES}


def split_format(typed: str, named: str) -> tuple[str, str]:
    """Split ``FILE[:FORMAT]`` into the file and the format of its records.

    Without ``:FORMAT``, the format is ``named``, or that of the file's suffix if ``cut_records`` knows it, or lines.

    >>> split_format("hits.faa", ""), split_format("hits.out:lines", ""), split_format("hits", "")
    (('hits.faa', 'fasta'), ('hits.out', 'lines'), ('hits', 'lines'))
    """
    path, _, name = typed.rpartition(":")
    if path and name in formats.FORMATS:
        return path, name
    told = formats.find_format_by_suffix(typed)
    return typed, named or (told if told in KNOWN else "") or "lines"


def check_format(typed: str, named: str) -> None:
    """Refuse an input whose format ``cut_records`` cannot cut.

    Raises:
        RefusedError: It has such a format.
    """
    path, name = split_format(typed, named)
    if name not in (*KNOWN, "files"):
        raise RefusedError(
            f"{path}: a Python function cannot be given records of format {name}",
            f"formats for it are {', '.join(sorted(KNOWN))}",
        )


def split_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of ``blocks``, each with its end.

    >>> list(split_lines([b"a", b"b\\nc\\n", b"d"]))
    [b'ab\\n', b'c\\n', b'd']
    """
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def cut_records(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the records of ``blocks`` in a format of ``split_format``; together they have all bytes of the input.

    >>> list(cut_records([b">a\\nMK", b"V\\n>b\\nML\\n"], "fasta"))
    [b'>a\\nMKV\\n', b'>b\\nML\\n']
    >>> list(cut_records([b"x\\n//\\ny\\n", b"//\\n"], "hmm"))
    [b'x\\n//\\n', b'y\\n//\\n']
    """
    if name in LINES:
        yield from split_lines(blocks)
        return
    start, end = STARTS.get(name), ENDS.get(name)
    parts: list[bytes] = []
    for line in split_lines(blocks):
        if start and line.startswith(start) and parts:
            yield b"".join(parts)
            parts = []
        parts.append(line)
        if end and re.fullmatch(re.escape(end) + rb"\s*", line):
            yield b"".join(parts)
            parts = []
    if record := b"".join(parts):
        yield record
