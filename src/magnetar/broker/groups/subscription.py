"""The topics in a consumer's member metadata (`ConsumerProtocolSubscription`).

Every version begins like version 0: i16 version, i32 topic count, then for each topic an i16 size and UTF-8.  Only
this prefix is read, so that groups of later versions can be read, too.
"""

import struct
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_I16: Final = struct.Struct(">h")
_HEADER: Final = struct.Struct(">hi")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The subscribed topics' names as the client wrote them; None if the metadata is no subscription."""
    if len(metadata) < _HEADER.size:
        return None
    version, count = _HEADER.unpack_from(metadata)
    at = _HEADER.size
    if version < 0 or not 0 <= count <= (len(metadata) - at) // _I16.size:
        return None
    topics: set[str] = set()
    for _ in range(count):
        if at + _I16.size > len(metadata):
            return None
        (size,) = _I16.unpack_from(metadata, at)
        at += _I16.size
        if size < 0 or at + size > len(metadata):
            return None
        try:
            topics.add(metadata[at : at + size].decode())
        except UnicodeDecodeError:
            return None
        at += size
    return frozenset(topics)
