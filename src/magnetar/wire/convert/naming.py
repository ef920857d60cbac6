"""Kafka's headers as Pulsar's properties and back: what both conversions agree on.

A header has a name and bytes or null, and names may repeat; a property has a name and a text, and clients see a map.
A header whose value is text is the property of that name.  Any other says how to undo it at the end of its name::

    <name>;<n>;<kind>     n: how many headers of the record before it have the same name
                          kind: text    the value as it is: a repeated name, or a name that itself ends like this
                                base64  a value that is not UTF-8
                                null    a null value; the property is empty

The way back takes off such an end, and only then decodes; a property with any other name is the header of that name.
Bytes of a header's name that are not UTF-8 become the replacement character, as in Kafka's own clients.

Pulsar's ordering key is the record's last header, named `pulsar-ordering-key`.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Final

ORDERING_KEY: Final = b"pulsar-ordering-key"
HEADERS_MAX: Final = 1 << 20  # of one record; clients send fewer, and hostile bytes may claim any number

_ENCODED: Final = re.compile(rb"(.*);[0-9]{1,9};(text|base64|null)", re.DOTALL)
_BASE64: Final = re.compile(rb"([A-Za-z0-9+/]*)={0,2}")
_SURROGATES: Final = re.compile("[\udc80-\udcff]")

RawHeader = tuple[bytes, bytes | None]
Property = tuple[bytes, bytes]


def is_text(value: bytes) -> bool:
    """Whether it is UTF-8, strictly."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def as_text(name: bytes) -> bytes:
    """`name` in UTF-8: each byte that is none of it becomes the replacement character."""
    if is_text(name):
        return name
    return _SURROGATES.sub("\ufffd", name.decode("utf-8", "surrogateescape")).encode()


def decode_base64(value: bytes) -> bytes | None:
    """The bytes behind base64, whose padding may be missing; None when it is none."""
    match = _BASE64.fullmatch(value)
    if match is None or len(match[1]) % 4 == 1:
        return None
    return b64decode(match[1] + b"=" * (-len(match[1]) % 4))


def properties_of(headers: Iterable[RawHeader]) -> list[Property]:
    """The properties that headers become, in their order."""
    seen: dict[bytes, int] = {}
    properties = []
    for name, value in headers:
        earlier = seen.get(name, 0)
        seen[name] = earlier + 1
        text = as_text(name)
        if value is None:
            kind, content = b"null", b""
        elif is_text(value):
            kind, content = b"text", value
        else:
            kind, content = b"base64", b64encode(value)
        if kind != b"text" or earlier or _ENCODED.fullmatch(name):
            text = b"%s;%d;%s" % (text, earlier, kind)
        properties.append((text, content))
    return properties


def header_of(name: bytes, value: bytes) -> RawHeader:
    """The header that a property stands for."""
    match = _ENCODED.fullmatch(name)
    if match is not None:
        if match[2] == b"text":
            return match[1], value
        if match[2] == b"null" and not value:
            return match[1], None
        if match[2] == b"base64":
            content = decode_base64(value)
            if content is not None:
                return match[1], content
    return name, value
