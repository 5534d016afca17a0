"""Records of the inputs and joins of the outputs, written here anew: the census must not lean on what it measures."""

from __future__ import annotations

import re
from pathlib import Path

#: What a record begins with, by the end of a file's name; a record of ``sdf`` and ``hmm`` ends with a line instead.
STARTS = {
    "fa": rb"^>", "mol2": rb"^@<TRIPOS>MOLECULE", "mgf": rb"^BEGIN IONS", "cm": rb"^INFERNAL1/", "sto": rb"^# STOCKHOLM", "gb": rb"^LOCUS",
}  # fmt: skip
ENDS = {"sdf": b"$$$$\n", "hmm": b"//\n", "boulder": b"=\n"}
#: Pieces of one size: more would show little.
MAX_PIECES = 4

HEADERS = {"vcf": rb"(?:#.*\n)*", "sam": rb"(?:@[A-Z][A-Z]\t.*\n)*", "csv": rb".*\n"}


def split_records(path: Path) -> tuple[bytes, list[bytes]]:
    """Return the header, with which each part begins, and the records of a file, by the end of its name."""
    text, kind = path.read_bytes(), path.suffix[1:]
    head = re.match(HEADERS[kind], text) if kind in HEADERS else None
    header = head[0] if head else b""
    body = text[len(header) :]
    if kind in STARTS:
        starts = [found.start() for found in re.finditer(STARTS[kind], body, re.MULTILINE)]
        return header, [body[a:b] for a, b in zip(starts, [*starts[1:], len(body)], strict=True)]
    if kind in ENDS:
        return header, [part + ENDS[kind] for part in body.split(ENDS[kind])[:-1]]
    lines = body.splitlines(keepends=True)
    if kind == "fq":
        return header, [b"".join(lines[at : at + 4]) for at in range(0, len(lines), 4)]
    return header, lines


def cut_sizes(n_records: int, size: int) -> list[int]:
    """Return sizes of pieces: a few of the size that is asked for, then two with the rest."""
    n_pieces = min(MAX_PIECES, -(-n_records // size))
    sizes = [min(size, n_records - at) for at in range(0, n_pieces * size, size)]
    rest = n_records - sum(sizes)
    return sizes + [part for part in (rest // 2, rest - rest // 2) if part]


def join_blocks(blocks: list[bytes], how: str) -> bytes | None:
    """Join the outputs of pieces; None: what stands once is not the same in all."""
    kind, _, what = how.partition(":")
    if kind in ("header", "sam", "csv"):
        cuts = [_measure_header(block, "^@[A-Z][A-Z]\t" if kind == "sam" else what or "1") for block in blocks]
        kept = [(block[:cut], block[cut:]) for block, cut in zip(blocks, cuts, strict=True) if block]
        if len({head for head, _ in kept}) > 1:
            return None
        return kept[0][0] + b"".join(body for _, body in kept) if kept else b""
    if kind == "xml":
        return _join_elements(blocks, what.encode())
    return b"".join(blocks)


def _measure_header(block: bytes, what: str) -> int:
    lines = block.splitlines(keepends=True)
    if what.isdigit():
        return len(b"".join(lines[: int(what)]))
    n_lines = next((k for k, line in enumerate(lines) if not re.search(what.encode(), line)), len(lines))
    return len(b"".join(lines[:n_lines]))


def _join_elements(blocks: list[bytes], tag: bytes) -> bytes | None:
    parts = [re.match(rb"(?s)(.*?<%b[^>]*>\n?)(.*)(</%b>.*)" % (tag, tag), block) for block in blocks]
    if not all(parts):
        return None
    found = [part.groups() for part in parts if part]
    return found[0][0] + b"".join(body for _, body, _ in found) + found[0][2]


def describe_difference(whole: bytes, joined: bytes | None) -> str:
    """Say in a few words how the output of pieces differs from that of the whole; ``same`` if it does not."""
    if joined is None:
        return "what should stand once differs"
    if whole == joined:
        return "same"
    ours, theirs = whole.splitlines(), joined.splitlines()
    if sorted(ours) == sorted(theirs):
        return "the same lines in another order"
    if set(ours) == set(theirs):
        return "the same lines, some more often"
    at = next((k for k, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    a, b = (repr(lines[at].decode(errors="replace")[:60]) if at < len(lines) else "nothing" for lines in (ours, theirs))
    return f"line {at + 1}: {a}, in pieces {b}"
