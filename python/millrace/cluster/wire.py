"""The encoding of messages: MessagePack, decoded by the types of ``millrace.cluster.messages`` alone.

Received bytes become numbers, texts, bytes and values of these types, or an error. Nothing in them can name a class, a
function or an attribute.
"""

from __future__ import annotations

from pathlib import Path, PosixPath
from typing import Any

import msgspec

from millrace import _core
from millrace.cluster.messages import Message, TaggedMessage
from millrace.errors import CorruptError


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
    if isinstance(value, _core.BlockRef | _core.TaskRef):
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
