"""Digests of records, as ``_core.Reader.digest_records`` makes them: one after the other, without anything between."""

from __future__ import annotations

#: Bytes of a digest.
DIGEST_BYTES = 16


def split_digests(digests: bytes) -> list[bytes]:
    """Split digests that stand one after the other.

    >>> split_digests(b"a" * 16 + b"b" * 16)
    [b'aaaaaaaaaaaaaaaa', b'bbbbbbbbbbbbbbbb']
    """
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]
