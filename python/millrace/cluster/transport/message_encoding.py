"""Encoding of messages: MessagePack, decoded by the types of messages alone, and a seal.

The types are those of ``millrace.cluster.messages``. Received bytes become numbers, texts, bytes and values of these
types, or an error. Nothing in them can name a class, a function or an attribute. The seal is an authentication code:
without the key of the run no message can be forged, changed, repeated, redirected or dropped unnoticed.
"""

from __future__ import annotations

import os
import struct
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from _operator import _compare_digest  # as hmac has it, for the same reason
from collections import defaultdict
from pathlib import Path, PosixPath
from typing import Any

import msgspec

from millrace import _core
from millrace.cluster.messages import Message, TaggedMessage
from millrace.core.errors import CorruptError

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


class BytewiseMessage(TaggedMessage, frozen=True, tag=64):
    """A message with a text that is no valid Unicode, such as a file name in another encoding.

    Each text in it is spelled as its bytes, one character a byte (Latin-1).
    """

    message: Any


def encode_message(message: Message) -> bytearray:
    """Encode a message as bytes."""
    content = bytearray()
    try:
        _ENCODER.encode_into(message, content)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(message, builtin_types=(bytes,), enc_hook=_encode_value)
        _ENCODER.encode_into(BytewiseMessage(_map_texts(plain, _spell_bytes_as_latin1)), content)
    return content


def decode_message(content: bytes | bytearray | memoryview) -> Message:
    """Decode a message that ``encode_message`` has encoded.

    Raises:
        CorruptError: The bytes are no message.
    """
    try:
        found = _DECODER.decode(content)
        if not isinstance(found, BytewiseMessage):
            return found
        plain = _map_texts(found.message, _read_bytes_from_latin1)
        message: Message = msgspec.convert(plain, type=_MESSAGE, builtin_types=(bytes,), dec_hook=_decode_value)
        return message
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptError(
            f"is not understood: {error}", "is it of another release? install the same one on all nodes"
        ) from error


def _encode_value(value: object) -> object:
    """Replace a value of a type unknown to MessagePack by a plain one."""
    if isinstance(value, _core.BlockRef | _core.TaskRef | _core.OutputPiece):
        return value.values
    if isinstance(value, PosixPath):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} does not travel")


def _decode_value(kind: type, value: Any) -> object:
    """Rebuild a value of type ``kind`` from a plain one.

    Raises:
        ValueError: The plain value does not fit the type.
    """
    if kind is Path and isinstance(value, str):
        return Path(value)
    try:
        if kind is _core.BlockRef:
            journal, block = value
            return _core.BlockRef(journal, tuple(block))
        if kind is _core.OutputPiece:
            journal, block, n_records, before, length = value
            return _core.OutputPiece(journal, tuple(block), n_records, tuple(before) if before else None, length)
        if kind is _core.TaskRef:
            journal, extent, quarantined, inputs, blocks = value
            return _core.TaskRef(
                journal, tuple(extent), quarantined, [tuple(each) for each in inputs], [tuple(each) for each in blocks]
            )
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{kind.__name__}: {error}") from error
    raise ValueError(f"{kind.__name__} does not travel")


def _map_texts(value: Any, change: Any) -> Any:
    """Return ``value`` with ``change`` applied to each text in it, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_map_texts(key, change): _map_texts(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_map_texts(each, change) for each in value]
    return value


def _spell_bytes_as_latin1(text: str) -> str:
    return text.encode(errors="surrogatepass").decode("latin-1")


def _read_bytes_from_latin1(letters: str) -> str:
    return letters.encode("latin-1").decode(errors="surrogatepass")


_MESSAGE: Any = Message
_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_value)
_DECODER: msgspec.msgpack.Decoder[Message | BytewiseMessage] = msgspec.msgpack.Decoder(
    Message | BytewiseMessage, dec_hook=_decode_value
)
