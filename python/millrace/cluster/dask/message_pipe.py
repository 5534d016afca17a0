"""Messages in a pipe between a Dask worker and the process with its slots: the length as 8 bytes, then the message."""

from __future__ import annotations

import struct
from typing import BinaryIO

from millrace.cluster.messages import Message
from millrace.cluster.transport.message_encoding import decode_message, encode_message

LENGTH = struct.Struct("<Q")


def read_message(source: BinaryIO) -> Message:
    """Read the next message.

    Raises:
        EOFError: The pipe is at its end.
        CorruptError: The bytes are no message.
    """
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(head)
    content = source.read(length)
    if len(content) < length:
        raise EOFError
    return decode_message(content)


def write_message(dest: BinaryIO, message: Message) -> None:
    """Write a message.

    Raises:
        OSError: Nobody reads the pipe any more.
    """
    content = encode_message(message)
    dest.write(LENGTH.pack(len(content)))
    dest.write(content)
    dest.flush()
