"""What is sealed opens with its key, of what it was sealed for, and not otherwise."""

import asyncio
import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.security.sealing import CannotOpen, Sealer

KEY, OTHER = b"k" * 32, b"o" * 32


@given(st.binary(max_size=2_000), st.text(max_size=50))
def test_it_opens_as_it_was(data: bytes, of: str) -> None:
    sealed = Sealer(KEY).seal(of, data)
    assert Sealer(KEY).open(of, sealed) == (data, False)
    assert Sealer(OTHER, KEY).open(of, sealed) == (data, True)
    assert Sealer(KEY, KEY).open(of, sealed) == (data, False)


def test_it_is_never_sealed_twice_in_the_same_way() -> None:
    assert len({Sealer(KEY).seal("x", b"secret") for _ in range(100)}) == 100


def test_it_is_of_the_form_that_is_documented() -> None:
    version, key_id, text = Sealer(KEY).seal("x", b"secret").split(".")
    assert (version, len(key_id)) == ("1", 8)
    assert len(base64.b64decode(text)) == 12 + len(b"secret") + 16
    assert key_id not in KEY.hex()


@pytest.mark.parametrize(
    ("key", "old_key", "reason"),
    [(OTHER, b"", "another key"), (OTHER, b"p" * 32, "another key")],
)
def test_with_another_key_it_does_not(key: bytes, old_key: bytes, reason: str) -> None:
    with pytest.raises(CannotOpen, match=reason):
        Sealer(key, old_key).open("x", Sealer(KEY).seal("x", b"secret"))


def test_what_was_changed_does_not() -> None:
    sealer = Sealer(KEY)
    sealed = sealer.seal("x", b"secret")
    version, key_id, text = sealed.split(".")
    raw = base64.b64decode(text)
    for index in range(len(raw)):
        changed = bytes([*raw[:index], raw[index] ^ 1, *raw[index + 1 :]])
        with pytest.raises(CannotOpen):
            sealer.open("x", f"{version}.{key_id}.{base64.b64encode(changed).decode()}")
    wrong = ["", ".", "1", f"2.{key_id}.{text}", f"1.{key_id}", f"1.{key_id}.", f"1.{key_id}.?", f"1..{text}"]
    for one in (*wrong, f"1.{key_id}.{base64.b64encode(raw[:20]).decode()}"):
        with pytest.raises(CannotOpen):
            sealer.open("x", one)
    with pytest.raises(CannotOpen, match="something else"):
        sealer.open("y", sealed)


def test_it_is_prepared_beside_the_loop() -> None:
    async def scenario() -> None:
        sealer = Sealer(KEY)
        await sealer.prepare()
        assert sealer.open("x", sealer.seal("x", b"")).data == b""

    asyncio.run(scenario())
