"""Seals on messages: who has not the key of the run can neither make, change, repeat, redirect nor leave out one unnoticed."""

from __future__ import annotations

import os
import struct
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from _operator import _compare_digest  # as hmac has it, for the same reason
from collections import defaultdict

from millrace import _core
from millrace.errors import CorruptError

#: Bytes of a key, and of a seal at the end of a message.
KEY_BYTES, SEAL_BYTES = 32, 16

#: Sender, receiver, MPI tag and number of a message: what its seal holds for.
CONTEXT = struct.Struct("<IIIQ")


def draw_secret() -> bytes:
    """What rank 0 draws, and all ranks of a start learn from it."""
    return os.urandom(KEY_BYTES)


def key_of(secret: bytes | bytearray, handed: bytes) -> bytes:
    """The key of a start.

    Args:
        secret: What rank 0 has drawn.
        handed: What a supervisor has handed to each rank; empty: there is none, and the key is as good as MPI's own start.
    """
    return blake2b(secret, key=blake2b(handed).digest(), digest_size=KEY_BYTES).digest()


class MessageSeal:
    """Seals what this process sends, and opens what it receives; in order for each of the others.

    Args:
        key: See `key_of`.
        rank: Of this process.
    """

    def __init__(self, key: bytes, rank: int) -> None:
        self._key, self._rank = key, rank
        #: Messages that went to each rank, and that came from it.
        self._sent: defaultdict[int, int] = defaultdict(int)
        self._received: defaultdict[int, int] = defaultdict(int)

    def seal_message(self, rank: int, tag: int, content: bytearray) -> None:
        """Add the seal to the end of the next message for ``rank``."""
        context = CONTEXT.pack(self._rank, rank, tag, self._sent[rank])
        content += _core.seal(self._key, context, content)
        self._sent[rank] += 1

    def open_message(self, rank: int, tag: int, sealed: bytes | bytearray) -> memoryview:
        """The content of the next message of ``rank``, without its seal.

        Raises:
            CorruptError: The seal is not that of ``rank``, this content and this moment.
        """
        view = memoryview(sealed)
        content, seal = view[:-SEAL_BYTES], view[-SEAL_BYTES:]
        context = CONTEXT.pack(rank, self._rank, tag, self._received[rank])
        if not _compare_digest(_core.seal(self._key, context, content), seal):
            raise CorruptError(
                "does not bear the seal of this run",
                "did a process that is none of this run's send it? see the network in docs/security.md",
            )
        self._received[rank] += 1
        return content
