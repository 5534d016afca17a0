"""Seals of messages: authentication codes made with the key of the run.

Without the key of the run no message can be forged, changed, repeated, redirected or dropped unnoticed.
"""

from __future__ import annotations

import os
import struct
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from _operator import _compare_digest  # as hmac has it, for the same reason
from collections import defaultdict

from millrace import _core
from millrace.errors import CorruptError

#: Bytes of a key, and of the seal at the end of a message.
KEY_BYTES, SEAL_BYTES = 32, 16

#: Sender, receiver, MPI tag and number of a message: the context that its seal covers.
CONTEXT = struct.Struct("<IIIQ")


def draw_secret() -> bytes:
    """Draw the random secret that rank 0 broadcasts to all ranks of a start."""
    return os.urandom(KEY_BYTES)


def derive_start_key(secret: bytes | bytearray, handed: bytes) -> bytes:
    """Derive the key of a start.

    Args:
        secret: The secret drawn by rank 0.
        handed: The key that a supervisor handed to each rank; empty: no supervisor, so the key is as secret as MPI's startup.
    """
    return blake2b(secret, key=blake2b(handed).digest(), digest_size=KEY_BYTES).digest()


class MessageSeal:
    """The seals of one process: seals messages it sends, checks those it receives, in order for each other rank.

    Args:
        key: See ``derive_start_key``.
        rank: Rank of this process.
    """

    def __init__(self, key: bytes, rank: int) -> None:
        self._key, self._rank = key, rank
        #: Number of messages sent to each rank, and received from it.
        self._sent: defaultdict[int, int] = defaultdict(int)
        self._received: defaultdict[int, int] = defaultdict(int)

    def seal_message(self, rank: int, tag: int, content: bytearray) -> None:
        """Append the seal to the next message for ``rank``, in place."""
        context = CONTEXT.pack(self._rank, rank, tag, self._sent[rank])
        content += _core.seal(self._key, context, content)
        self._sent[rank] += 1

    def open_message(self, rank: int, tag: int, sealed: bytes | bytearray) -> memoryview:
        """Check the seal of the next message of ``rank``; return its content, without a copy.

        Raises:
            CorruptError: The seal does not match the sender, the content and the number of the message.
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
