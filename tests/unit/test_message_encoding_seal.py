"""Seals: who has not the key of the run can neither make, change, repeat, redirect nor leave out a message unnoticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.cluster.transport.message_encoding import (
    KEY_BYTES,
    SEAL_BYTES,
    MessageSeal,
    derive_start_key,
    draw_secret,
)
from millrace.core.errors import CorruptError

KEY = bytes(range(KEY_BYTES))
TAG = 2


def sealed(content: bytes, key: bytes = KEY, sender: int = 1, receiver: int = 0, n_before: int = 0) -> bytearray:
    """What ``sender`` sends to ``receiver`` after ``n_before`` other messages."""
    seal = MessageSeal(key, sender)
    for _ in range(n_before):
        seal.seal_message(receiver, TAG, bytearray(b"earlier"))
    message = bytearray(content)
    seal.seal_message(receiver, TAG, message)
    return message


def is_refused(message: bytes | bytearray, sender: int = 1, receiver: int = 0, tag: int = TAG) -> bool:
    try:
        MessageSeal(KEY, receiver).open_message(sender, tag, message)
    except CorruptError as error:
        assert error.message == "does not bear the seal of this run"
        return True
    return False


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=2000)), max_size=9))
def test_messages_of_several_senders_open_in_order(messages: list[tuple[int, bytes]]) -> None:
    senders = [MessageSeal(KEY, rank) for rank in range(4)]
    receiver = MessageSeal(KEY, 9)
    for sender, content in messages:
        message = bytearray(content)
        senders[sender].seal_message(9, TAG, message)
        assert len(message) == len(content) + SEAL_BYTES
        assert receiver.open_message(sender, TAG, message) == content


@given(content=st.binary(max_size=100), at=st.integers(0), flip=st.integers(1, 255))
def test_a_changed_byte_is_refused(content: bytes, at: int, flip: int) -> None:
    message = sealed(content)
    message[at % len(message)] ^= flip
    assert is_refused(message)


@given(content=st.binary(min_size=1, max_size=100), end=st.integers(0))
def test_a_shorter_or_longer_message_is_refused(content: bytes, end: int) -> None:
    message = sealed(content)
    assert is_refused(message[: end % len(message)])
    assert is_refused(message + message[: end % len(message) + 1])


def test_message_for_another_rank_or_tag_is_refused() -> None:
    assert not is_refused(sealed(b"done"))
    assert is_refused(sealed(b"done"), sender=2), "in the name of another"
    assert is_refused(sealed(b"done", receiver=3)), "for another"
    assert is_refused(sealed(b"done", sender=0, receiver=1)), "sent back"
    assert is_refused(sealed(b"done"), tag=TAG + 1), "taken for another kind"
    assert is_refused(sealed(b"done", n_before=1)), "one before it was left out"
    assert is_refused(sealed(b"done", key=bytes(KEY_BYTES))), "with another key"


def test_a_repeated_message_is_refused() -> None:
    message, receiver = sealed(b"done"), MessageSeal(KEY, 0)
    receiver.open_message(1, TAG, message)
    with pytest.raises(CorruptError):
        receiver.open_message(1, TAG, message)


def test_forged_message_does_not_disturb_genuine_ones() -> None:
    receiver = MessageSeal(KEY, 0)
    with pytest.raises(CorruptError):
        receiver.open_message(1, TAG, sealed(b"done", key=bytes(KEY_BYTES)))
    assert receiver.open_message(1, TAG, sealed(b"done")) == b"done"


def test_keys_differ_by_secret_and_inherited_key() -> None:
    keys = {
        derive_start_key(secret, handed)
        for secret in (bytes(32), bytes([1] * 32))
        for handed in (b"", b"a", b"a" * 999)
    }
    assert len(keys) == 6 and {len(key) for key in keys} == {KEY_BYTES}
    assert draw_secret() != draw_secret()
