"""Packs encrypted in the format of age (age-encryption.org), by ``pyrage``.

An encrypted pack is one age file that contains a pack: ``age -d`` decrypts it to a file that ``millrace unpack`` reads.
"""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millrace.core.errors import CorruptError, RefusedError
from millrace.extensions.pack.layout import MAGIC, make_temporary_path

#: First bytes of an age file.
HEAD = b"age-encryption.org/"

#: End of the header of an age file, and the largest header that is searched for it, in bytes.
HEADER_END = re.compile(rb"\n--- [A-Za-z0-9+/]{43}\n")
MAX_HEADER_BYTES = 1 << 20


def parse_recipients(words: Sequence[str]) -> list[Any]:
    """Parse public keys, as ``age-keygen`` and ``ssh-keygen`` write them.

    Raises:
        RefusedError: One is invalid, or pyrage is not installed.
    """
    return [_parse_recipient(word.strip()) for word in words]


@contextmanager
def encrypt_when_written(dest: Path, keys: Sequence[Any]) -> Iterator[Path]:
    """Yield the path to write a pack to, and encrypt that file into ``dest`` on exit; without keys, yield ``dest``."""
    if not keys:
        yield dest
        return
    with tempfile.TemporaryDirectory(prefix=f".{dest.name}.", dir=dest.parent) as folder:
        plain, fresh = Path(folder) / dest.name, make_temporary_path(dest)
        yield plain
        try:
            with plain.open("rb") as given, fresh.open("xb") as out:
                _import_pyrage().encrypt_io(given, out, keys)
                out.flush()
                os.fsync(out.fileno())
            fresh.replace(dest)
        finally:
            fresh.unlink(missing_ok=True)


def is_encrypted(path: Path) -> bool:
    """Tell whether ``path`` is an age file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HEAD)) == HEAD


def refuse_encrypted(path: Path, hint: str) -> None:
    """Refuse a pack that cannot be read without a key.

    Raises:
        RefusedError: The pack is encrypted.
    """
    if is_encrypted(path):
        raise RefusedError(f"{path}: is encrypted", hint)


@contextmanager
def decrypt_for_reading(pack: Path, identity: Path | None, folder: Path) -> Iterator[Path]:
    """Yield a path to read a pack from, decrypted if needed into a file without a name, which ends with the process.

    Args:
        identity: A file with private keys: of ``age-keygen``, or one of ``ssh-keygen`` without a passphrase.
        folder: The folder for the decrypted file.

    Raises:
        RefusedError: The pack needs a key, or another key.
        CorruptError: The pack is damaged.
    """
    if identity is None:
        refuse_encrypted(pack, "name the file with your private key: --identity FILE")
        yield pack
        return
    keys = _read_identities(identity)
    if pack.is_file() and not is_encrypted(pack):
        raise RefusedError(f"{pack}: is not encrypted", "leave out --identity")
    with tempfile.TemporaryFile(dir=folder) as plain:
        _decrypt_pack(pack, keys, identity, plain)
        plain.seek(0)
        if plain.read(len(MAGIC)) != MAGIC:
            raise RefusedError(f"{pack}: what is encrypted there is not a pack of Millrace")
        yield Path(f"/proc/self/fd/{plain.fileno()}")


def _decrypt_pack(pack: Path, keys: Sequence[Any], identity: Path, plain: Any) -> None:
    try:
        with pack.open("rb") as given:
            _import_pyrage().decrypt_io(given, plain, keys)
        plain.flush()
    except FileNotFoundError as error:
        raise RefusedError(f"{pack}: no such file", "check the path of the pack") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise CorruptError(f"{pack}: the pack is damaged, or cut off", "copy it again") from error
    except _import_pyrage().DecryptError as error:
        with pack.open("rb") as given:
            if not HEADER_END.search(given.read(MAX_HEADER_BYTES)):
                raise CorruptError(f"{pack}: the pack is damaged, or cut off in its header", "copy it again") from error
        raise RefusedError(
            f"{pack}: cannot be decrypted with {identity}: {str(error).lower()}",
            "name the private key of one of those for whom it was encrypted; if it is that, copy the pack again",
        ) from error


def _read_identities(path: Path) -> list[Any]:
    """Read the private keys in a file."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RefusedError(f"--identity {path}: {error.strerror}", "name the file with your private key") from error
    pyrage, words = (
        _import_pyrage(),
        [line.decode(errors="replace") for line in text.split() if line.startswith(b"AGE-SECRET-KEY-")],
    )
    try:
        return [pyrage.x25519.Identity.from_str(word) for word in words] or [pyrage.ssh.Identity.from_buffer(text)]
    except pyrage.IdentityError as error:
        raise RefusedError(
            f"--identity {path}: no private key that age knows: {error}",
            "name a file of age-keygen, or a private key of ssh (ed25519, rsa) without a passphrase",
        ) from error


def _parse_recipient(word: str) -> Any:
    pyrage = _import_pyrage()
    if word.startswith("AGE-SECRET-KEY-"):
        raise RefusedError(
            "--encrypt-to: this is a private key, which others may have seen now",
            "name the public one, and make new keys",
        )
    try:
        return (pyrage.ssh if word.startswith("ssh-") else pyrage.x25519).Recipient.from_str(word)
    except pyrage.RecipientError as error:
        raise RefusedError(
            f"--encrypt-to {word}: no public key that age knows: {error}",
            f'write what is in the file: --encrypt-to "$(cat {word})"'
            if os.path.isfile(word)
            else "write age1..., as age-keygen does, or 'ssh-ed25519 ...' or 'ssh-rsa ...'",
        ) from error


def _import_pyrage() -> Any:
    try:
        return importlib.import_module("pyrage")
    except ImportError as error:
        raise RefusedError(
            "encryption needs the Python package pyrage, which is not installed", "pip install 'millrace[age]'"
        ) from error
