"""Request header v1 and v2, response header v0 and v1."""

import random
from importlib import import_module

import pytest

from magnetar.base.errors import WireError
from magnetar.wire.kafka.header import (
    HEADER_TAGS_MAX,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from magnetar.wire.kafka.messages import FLEXIBLE_SINCE, MODULES, NAMES, asking
from magnetar.wire.kafka.runtime import varint

PRODUCE, API_VERSIONS, SASL_HANDSHAKE = 0, 18, 17

CLASSIC = bytes.fromhex("0000 0008 00000007 0007") + b"rdkafka"
FLEXIBLE = bytes.fromhex("0000 0009 00000007 0007") + b"rdkafka" + b"\0"


@pytest.mark.parametrize(("frame", "version"), [(CLASSIC, 8), (FLEXIBLE, 9)])
def test_the_body_starts_behind_the_header(frame: bytes, version: int) -> None:
    header = decode_request_header(memoryview(frame + b"body"))
    assert header == (PRODUCE, version, 7, "rdkafka", len(frame))
    assert encode_request_header(PRODUCE, version, 7, "rdkafka") == frame


@pytest.mark.parametrize("client_id", [None, "", "x" * 32767, "ü日"])
@pytest.mark.parametrize("version", [8, 9])
def test_any_client_id_comes_back(client_id: str | None, version: int) -> None:
    frame = encode_request_header(PRODUCE, version, -5, client_id)
    assert decode_request_header(memoryview(frame)) == (PRODUCE, version, -5, client_id, len(frame))


@pytest.mark.parametrize("frame", [CLASSIC, FLEXIBLE])
def test_a_header_cut_anywhere_is_refused(frame: bytes) -> None:
    for size in range(len(frame)):
        with pytest.raises(WireError):
            decode_request_header(memoryview(frame[:size]))


def test_tagged_fields_of_a_newer_client_are_skipped() -> None:
    frame = FLEXIBLE[:-1] + b"\x02\x05\x03abc\x07\x00"
    assert decode_request_header(memoryview(frame)).position == len(frame)


def test_a_header_has_a_bounded_number_of_tagged_fields() -> None:
    many = FLEXIBLE[:-1] + varint(HEADER_TAGS_MAX) + b"\x05\0" * HEADER_TAGS_MAX
    assert decode_request_header(memoryview(many)).position == len(many)
    more = FLEXIBLE[:-1] + varint(HEADER_TAGS_MAX + 1) + b"\x05\0" * (HEADER_TAGS_MAX + 1)
    with pytest.raises(WireError, match="1025 tagged fields"):
        decode_request_header(memoryview(more))
    with pytest.raises(WireError, match="1025 tagged fields"):
        decode_response_header(memoryview(bytes(4) + more[len(FLEXIBLE) - 1 :]), PRODUCE, 9)


@pytest.mark.parametrize("length", [-2, -32768])
def test_a_client_id_of_negative_length_is_refused(length: int) -> None:
    frame = CLASSIC[:8] + length.to_bytes(2, "big", signed=True)
    with pytest.raises(WireError, match=f"client id has length {length}"):
        decode_request_header(memoryview(frame + b"abc"))


def test_a_client_id_that_is_not_text_is_refused() -> None:
    with pytest.raises(WireError, match="utf-8"):
        decode_request_header(memoryview(CLASSIC[:-1] + b"\xff"))


def test_an_unknown_api_is_read_as_classic_so_that_it_can_be_refused_by_number() -> None:
    frame = encode_request_header(999, 3, 1, "c")
    assert decode_request_header(memoryview(frame)).api_key == 999


def test_random_bytes_raise_nothing_but_wire_errors() -> None:
    rng = random.Random(7)
    for _ in range(20_000):
        frame = rng.randbytes(rng.randrange(30))
        try:
            position = decode_request_header(memoryview(b"\0" + frame)).position
        except WireError:
            continue
        assert 10 <= position <= len(frame) + 1


@pytest.mark.parametrize(
    ("key", "version", "size"),
    [(PRODUCE, 8, 4), (PRODUCE, 9, 5), (API_VERSIONS, 4, 4), (SASL_HANDSHAKE, 1, 4)],
)
def test_answers_have_tags_but_for_api_versions(key: int, version: int, size: int) -> None:
    frame = encode_response_header(key, version, 77)
    assert len(frame) == size
    assert decode_response_header(memoryview(frame), key, version) == (77, size)
    for cut in range(size):
        with pytest.raises(WireError):
            decode_response_header(memoryview(frame[:cut]), key, version)


def test_tagged_fields_of_a_response_header_are_skipped() -> None:
    assert decode_response_header(memoryview(b"\0\0\0\x01\x01\x05\x02ab"), PRODUCE, 9) == (1, 9)


def test_the_registry_agrees_with_the_modules() -> None:
    assert set(MODULES) == set(NAMES)
    for key in MODULES:
        module = import_module(f"magnetar.wire.kafka.messages.{MODULES[key]}")
        assert (
            asking.load(key).encode_request.__module__
            == f"magnetar.wire.kafka.messages.asking.{MODULES[key]}"
        )
        assert key == module.API_KEY
        assert FLEXIBLE_SINCE.get(key) == module.FLEXIBLE_SINCE
    with pytest.raises(KeyError):
        asking.load(999)
