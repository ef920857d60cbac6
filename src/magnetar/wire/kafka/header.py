"""Request and response headers: what stands in front of every body.

    request v1   i16 api key, i16 api version, i32 correlation id, i16 + utf-8 client id (-1: null)
    request v2   the same and a tagged section; the client id keeps its classic length
    response v0  i32 correlation id
    response v1  the same and a tagged section

A request of a flexible version has header v2, and its answer has v1.  ApiVersions is the exception: its answer always
has v0, because a client asks it before it knows what the broker can read (KIP-511).
"""

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from magnetar.base.errors import WireError
from magnetar.wire.kafka.messages import FLEXIBLE_SINCE
from magnetar.wire.kafka.runtime import DECODE_FAILURES, skip_tags

API_VERSIONS_KEY: Final = 18

HEADER_TAGS_MAX: Final = 1024  # today's clients send none

_NEVER: Final = 1 << 15  # above every INT16
_unpack_fixed = struct.Struct(">hhih").unpack_from
_pack_fixed = struct.Struct(">hhih").pack
_pack_correlation = struct.Struct(">i").pack
_pack_correlation_tags = struct.Struct(">ix").pack
_pack_size_correlation = struct.Struct(">ii").pack
_pack_size_correlation_tags = struct.Struct(">iix").pack
_unpack_correlation = struct.Struct(">i").unpack_from


class RequestHeader(NamedTuple):
    """The header and where the body starts, in bytes from the start of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    position: int


def decode_request_header(
    buffer: memoryview, flexible_since: Mapping[int, int] = FLEXIBLE_SINCE
) -> RequestHeader:
    """Read the header of the frame in `buffer` (without its size).  An unknown API is read as classic.

    Raises:
        WireError: the frame ends inside its header, or the client id is not one.
    """
    return RequestHeader(*read_request_header(buffer, flexible_since))


def read_request_header(
    buffer: memoryview, flexible_since: Mapping[int, int] = FLEXIBLE_SINCE
) -> tuple[int, int, int, str | None, int]:
    """As `decode_request_header`, without the names."""
    try:
        api_key, api_version, correlation_id, n = _unpack_fixed(buffer, 0)
        if n > 0:
            position = 10 + n
            client_id: str | None = str(buffer[10:position], "utf-8")
        elif n == 0:
            position, client_id = 10, ""
        elif n == -1:
            position, client_id = 10, None
        else:
            raise WireError(f"client id has length {n}")
        if api_version >= flexible_since.get(api_key, _NEVER):
            tags = buffer[position]
            position += 1
            if tags:
                position, _ = skip_tags(buffer, position, tags, HEADER_TAGS_MAX)
        elif position > len(buffer):
            raise WireError("request ends inside its header")
    except DECODE_FAILURES as error:
        raise WireError(f"request header is malformed: {error}") from error
    return api_key, api_version, correlation_id, client_id, position


def encode_request_header(
    api_key: int,
    api_version: int,
    correlation_id: int,
    client_id: str | None,
    flexible_since: Mapping[int, int] = FLEXIBLE_SINCE,
) -> bytes:
    """The client's side of `decode_request_header`."""
    name = b"" if client_id is None else client_id.encode()
    header = _pack_fixed(api_key, api_version, correlation_id, -1 if client_id is None else len(name)) + name
    return header + b"\0" if api_version >= flexible_since.get(api_key, _NEVER) else header


def encode_response_header(
    api_key: int, api_version: int, correlation_id: int, flexible_since: Mapping[int, int] = FLEXIBLE_SINCE
) -> bytes:
    if api_version >= flexible_since.get(api_key, _NEVER) and api_key != API_VERSIONS_KEY:
        return _pack_correlation_tags(correlation_id)
    return _pack_correlation(correlation_id)


def encode_response_front(
    body_bytes: int,
    api_key: int,
    api_version: int,
    correlation_id: int,
    flexible_since: Mapping[int, int] = FLEXIBLE_SINCE,
) -> bytes:
    """What stands in front of a body of `body_bytes`: the size of the frame, and the header."""
    if api_version >= flexible_since.get(api_key, _NEVER) and api_key != API_VERSIONS_KEY:
        return _pack_size_correlation_tags(5 + body_bytes, correlation_id)
    return _pack_size_correlation(4 + body_bytes, correlation_id)


def decode_response_header(
    buffer: memoryview,
    api_key: int,
    api_version: int,
    flexible_since: Mapping[int, int] = FLEXIBLE_SINCE,
) -> tuple[int, int]:
    """(correlation id, position of the body) of the answer to a request of `api_key` and `api_version`.

    Raises:
        WireError: the frame ends inside its header.
    """
    try:
        (correlation_id,) = _unpack_correlation(buffer, 0)
        position = 4
        if api_version >= flexible_since.get(api_key, _NEVER) and api_key != API_VERSIONS_KEY:
            tags = buffer[position]
            position += 1
            if tags:
                position, _ = skip_tags(buffer, position, tags, HEADER_TAGS_MAX)
    except DECODE_FAILURES as error:
        raise WireError(f"response header is malformed: {error}") from error
    return correlation_id, position
