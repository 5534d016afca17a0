"""The small files of a run directory: JSON with a checksum against changes and a schema against other contents."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from millrace import _core
from millrace.core.errors import CorruptError

Kind = TypeVar("Kind")

#: First bytes of such a file; the checksum covers all bytes after this match.
_SEAL = re.compile(rb'\{\n  "checksum": "([0-9a-f]{8})",\n')

#: If msgspec compiles one type in two threads at once, the process crashes (seen with 0.22: SIGSEGV, one in twenty
#: starts of four threads).
_FIRST = threading.Lock()

HINT = "start over with --fresh"

#: Fields of inputs that earlier releases wrote; ``content`` replaces them.
FORMER_FIELDS = frozenset({"glue_empty"})


def encode_json(value: Any) -> bytes:
    """Return ``value`` as indented JSON.

    Bytes of file names that are not UTF-8 survive: ``json`` writes and reads the lone surrogates that stand for them,
    ``msgspec`` does not.
    """
    return json.dumps(msgspec.to_builtins(value, enc_hook=str), indent=2).encode()


def encode_checksummed(value: Any) -> bytes:
    """Return ``value``, an object that is not empty, as the bytes of a file with its checksum."""
    rest = encode_json(value).removeprefix(b"{\n")
    return b'{\n  "checksum": "%08x",\n' % _core.crc32c(rest) + rest


def read_checksummed(path: Path, kind: type[Kind], what: str, version: int = 0) -> Kind:
    """Read a file of ``encode_checksummed`` and check it.

    Args:
        what: Description of the file, for messages.
        version: Required value of its field ``version``, if it has one.

    Raises:
        FileNotFoundError: The file does not exist.
        CorruptError: It cannot be read, or differs from the file that was written.
    """
    try:
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:  # in case it is a pipe
            text = file.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
    except OSError as error:
        raise CorruptError(f"{path}: not {what}: {os.strerror(error.errno or 0).lower()}", HINT) from error
    sealed = _SEAL.match(text)
    whole = sealed and int(sealed[1], 16) == _core.crc32c(text[sealed.end() :])
    try:
        found = json.loads(text)
        if version and isinstance(found, dict) and found.get("version", version) != version:
            raise CorruptError(
                f"{path}: version {found['version']}, this release reads version {version}",
                f"{HINT}, or use the release that began the run",
            )
        if not whole:
            raise CorruptError(f"{path}: not {what} as it was written: its checksum is wrong", HINT)
        found.pop("checksum")
        with _FIRST:
            return msgspec.convert(_drop_former_fields(found), kind, dec_hook=lambda wanted, value: wanted(value))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptError(f"{path}: not {what}: {error}", f"written by another release? {HINT}") from error


def _drop_former_fields(value: Any) -> Any:
    """Remove the fields of earlier releases that have no meaning any more."""
    if isinstance(value, dict):
        return {name: _drop_former_fields(each) for name, each in value.items() if name not in FORMER_FIELDS}
    return [_drop_former_fields(each) for each in value] if isinstance(value, list) else value
