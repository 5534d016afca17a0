"""Seals of the rows of a store: a checksum, or in a group's store the signature of the owner who has kept the row.

Keys are Ed25519 keys of OpenSSH, and the list of owners has the form of its ``allowed_signers``: a name, and a public key.
Both lie in the user's own folder, never in the store, which others can write.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from millrace.core.errors import RefusedError
from millrace.host import permissions

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

#: The owners whose rows are read, and the user's key without a passphrase, in ``~/.config/millrace``.
OWNERS, KEY = "store-owners", "store-key"

#: Bytes of a checksum, and of the name of a key before a signature.
_SHORT = 16

#: So that a signature is never one of something else.
_PURPOSE = b"millrace store row\0"


class RowSeal(Protocol):
    """Protocol of what shows that a row is as it was written, and by whom."""

    #: Whether rows can be written.
    can_make: bool
    #: Whether others can write the store.
    is_shared: bool

    def make(self, text: bytes) -> bytes:
        """Return the seal of a row."""
        ...

    def is_valid(self, text: bytes, seal: object) -> bool:
        """Tell whether a seal is that of a row, made by someone whose rows are read."""
        ...

    def is_read(self, seal: object) -> bool:
        """Tell whether a seal may be valid, by its owner alone."""
        ...

    def find_owner(self, seal: bytes) -> tuple[bytes, str]:
        """Return the first bytes of all seals of the owner, and the owner's name; both are empty where there is one owner."""
        ...


class ChecksumSeal:
    """Checksums, for a store that only its owner can write."""

    can_make, is_shared = True, False

    def make(self, text: bytes) -> bytes:
        """See ``RowSeal.make``."""
        return hashlib.sha256(text).digest()[:_SHORT]

    def is_valid(self, text: bytes, seal: object) -> bool:
        """See ``RowSeal.is_valid``."""
        return seal == self.make(text)

    def is_read(self, seal: object) -> bool:
        """See ``RowSeal.is_read``."""
        return True

    def find_owner(self, seal: bytes) -> tuple[bytes, str]:
        """See ``RowSeal.find_owner``."""
        return b"", ""


class ListedOwner(NamedTuple):
    """An owner whose rows are read."""

    name: str
    key: Ed25519PublicKey


class SignatureSeal:
    """Signatures, for a store that several users write.

    Args:
        key: The user's own key; None: nothing is written.
        owners: By the name of their key.
    """

    is_shared = True

    def __init__(self, key: Ed25519PrivateKey | None, owners: Mapping[bytes, ListedOwner]) -> None:
        self._key, self._owners, self.can_make = key, dict(owners), key is not None
        #: Name of the user's own key, with which the seals begin.
        self.own_name = b""
        if key:
            self.own_name = _name_key(key.public_key())
            self._owners.setdefault(self.own_name, ListedOwner("you", key.public_key()))

    def make(self, text: bytes) -> bytes:
        """See ``RowSeal.make``."""
        assert self._key  # the store is only read without
        return self.own_name + self._key.sign(_PURPOSE + text)

    def is_valid(self, text: bytes, seal: object) -> bool:
        """See ``RowSeal.is_valid``."""
        from cryptography.exceptions import InvalidSignature

        if not isinstance(seal, bytes) or not self.is_read(seal):
            return False
        try:
            self._owners[seal[:_SHORT]].key.verify(seal[_SHORT:], _PURPOSE + text)
        except InvalidSignature:
            return False
        return True

    def is_read(self, seal: object) -> bool:
        """See ``RowSeal.is_read``."""
        return isinstance(seal, bytes) and seal[:_SHORT] in self._owners

    def find_owner(self, seal: bytes) -> tuple[bytes, str]:
        """See ``RowSeal.find_owner``."""
        return seal[:_SHORT], self._owners[seal[:_SHORT]].name


def find_seal(store: Path, environ: Mapping[str, str]) -> RowSeal:
    """Return the seal of the rows of a store: signatures if others can write it and the user has a list of owners.

    Raises:
        RefusedError: The list, or the key, cannot be used.
        OSError: The store cannot be examined.
    """
    folder = permissions.find_config_folder(environ)
    if folder is None or not _can_others_write(store) or not (folder / OWNERS).exists():
        return ChecksumSeal()
    return read_signature_seal(str(store), folder, environ)


def read_signature_seal(store: str, folder: Path, environ: Mapping[str, str]) -> SignatureSeal:
    """Return the seal of a store that others can write, by the list of owners and the key in ``folder``.

    Raises:
        RefusedError: The list, or the key, cannot be used.
        OSError: The list cannot be read.
    """
    if permissions.find_cache_folder(environ) is None:
        raise RefusedError(
            f"{store}: others can write it, and you have no cache folder of your own", "set XDG_CACHE_HOME"
        )
    try:
        import cryptography  # noqa: F401
    except ImportError:
        hint = "pip install 'millrace[owners]'"
        raise RefusedError("a store with several owners needs the package cryptography", hint) from None
    owners = {}
    for at, line in enumerate((folder / OWNERS).read_text().splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            name, _, key = line.strip().partition(" ")
            public = _read_public_key(key, f"{folder / OWNERS}:{at}")
            owners[_name_key(public)] = ListedOwner(name, public)
    return SignatureSeal(_read_own_key(folder / KEY), owners)


def _can_others_write(store: Path) -> bool:
    if not store.exists():
        return False
    about = store.stat()
    return about.st_uid != os.geteuid() or bool(about.st_mode & stat.S_IWGRP)


def _name_key(key: Ed25519PublicKey) -> bytes:
    return hashlib.sha256(key.public_bytes_raw()).digest()[:_SHORT]


def _read_public_key(text: str, place: str) -> Ed25519PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        key = load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise RefusedError(f"{place}: not a public key: {error}", "a line is: NAME ssh-ed25519 AAAA...") from error
    if not isinstance(key, Ed25519PublicKey):
        raise RefusedError(f"{place}: not an Ed25519 key", "ssh-keygen -t ed25519 makes one")
    return key


def _read_own_key(path: Path) -> Ed25519PrivateKey | None:
    if not path.exists():
        return None
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    hint = f"ssh-keygen -t ed25519 -N '' -f {path} makes one"
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RefusedError(f"{path}: not a private key without a passphrase: {error}", hint) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise RefusedError(f"{path}: not an Ed25519 key", hint)
    return key
