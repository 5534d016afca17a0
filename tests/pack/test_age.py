"""Packs that only who has the key can unpack."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from in_process_cli import told

from millrace.cli.pack import command as pack
from millrace.cli.send import command as send
from millrace.cli.unpack import command as unpack
from millrace.core.errors import CorruptError, MillraceError, RefusedError
from millrace.extensions.pack import age_encryption, pack_unpacker, result_files

pyrage = pytest.importorskip("pyrage")


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A public key; its private one is in ``key``, and that of somebody else in ``other``. There is a result in ``out``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").write_text("B\nA\n" * 500)
    ours, other = pyrage.x25519.Identity.generate(), pyrage.x25519.Identity.generate()
    (tmp_path / "key").write_text(f"# created: today\n# public key: {ours.to_public()}\n{ours}\n")
    (tmp_path / "other").write_text(f"{other}\n")
    return str(ours.to_public())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_pack_is_decrypted_only_with_its_key(key: str, tmp_path: Path) -> None:
    before = names(tmp_path)
    assert told(pack, "out", "-o", "p.mrp", "--encrypt-to", key)[0] == 0
    assert (tmp_path / "p.mrp").read_bytes().startswith(b"age-encryption.org/v1\n")
    assert names(tmp_path) == before | {"p.mrp"}
    assert told(unpack, "p.mrp", "--identity", "key", "-o", "again")[0] == 0
    assert (tmp_path / "again").read_bytes() == (tmp_path / "out").read_bytes()
    code, words = told(unpack, "p.mrp", "-o", "third")
    assert (code, "--identity FILE" in words) == (2, True), words


def test_wrong_key_and_damage_are_reported(key: str, tmp_path: Path) -> None:
    def encrypted() -> bytes:
        with age_encryption.encrypt_when_written(tmp_path / "p.mrp", age_encryption.parse_recipients([key])) as fresh:
            result_files.pack_traces_or_plain([tmp_path / "out"], fresh)
        return (tmp_path / "p.mrp").read_bytes()

    text = encrypted()
    before = names(tmp_path)
    cases: list[tuple[type[MillraceError], str, str, bytes]] = [
        (RefusedError, "no matching keys", "other", text),
        (RefusedError, "no private key", "out", text),
        (RefusedError, "No such file", "none", text),
        (RefusedError, "not encrypted", "key", b"MRPACK\r\n"),
        (
            RefusedError,
            "what is encrypted there is not a pack",
            "key",
            pyrage.encrypt(b"x" * 99, age_encryption.parse_recipients([key])),
        ),
        (CorruptError, "damaged", "key", text[:-1]),
        (CorruptError, "cut off in its header", "key", text[: text.index(b"\n---") + 20]),
        (CorruptError, "cut off in its header", "key", text[:40]),
        (CorruptError, "damaged", "key", text[:-9] + bytes([text[-9] ^ 1]) + text[-8:]),
    ]
    for kind, words, identity, data in cases:
        (tmp_path / "p.mrp").write_bytes(data)
        with (
            pytest.raises(kind, match=words),
            age_encryption.decrypt_for_reading(tmp_path / "p.mrp", tmp_path / identity, tmp_path),
        ):
            pass
        assert names(tmp_path) == before


def test_ssh_key_encrypts_a_pack(key: str, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "ssh"], cwd=tmp_path, check=True)
    public = (tmp_path / "ssh.pub").read_text().strip()
    with age_encryption.encrypt_when_written(
        tmp_path / "p.mrp", age_encryption.parse_recipients([public, key])
    ) as fresh:
        result_files.pack_traces_or_plain([tmp_path / "out"], fresh)
    for identity in ("ssh", "key"):
        with age_encryption.decrypt_for_reading(tmp_path / "p.mrp", tmp_path / identity, tmp_path) as plain:
            assert pack_unpacker.read_recipe(plain).outputs[0].name == "out"


def test_invalid_public_key_is_refused(key: str, tmp_path: Path) -> None:
    for word in ("me@host", key[:-1], "ssh-ed25519 AAAA", str(tmp_path / "key")):
        with pytest.raises(RefusedError, match="no public key that age knows"):
            age_encryption.parse_recipients([word])
    before = names(tmp_path)
    code, words = told(pack, "out", "-o", "p.mrp", "--encrypt-to", (tmp_path / "key").read_text().split()[-1])
    assert code == 2
    assert "private key" in words and "AGE-SECRET-KEY" not in words
    assert names(tmp_path) == before


def test_an_encrypted_pack_is_not_sent(key: str, tmp_path: Path) -> None:
    (tmp_path / "p.mrp").write_bytes(pyrage.encrypt(b"", age_encryption.parse_recipients([key])))
    code, words = told(send, "p.mrp", "host:out", "--ssh", "false")
    assert code == 2
    assert "is encrypted" in words and "ssh encrypts" in words


def test_pyrage_is_imported_only_when_needed(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyrage", None)
    assert told(pack, "out", "-o", "p.mrp")[0] == 0
    code, words = told(pack, "out", "-o", "p.mrp", "--encrypt-to", key)
    assert (code, "millrace[age]" in words) == (2, True), words
