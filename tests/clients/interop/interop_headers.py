"""Kafka's headers in the properties that a Pulsar client shows, by the rule of `docs/reference/interop.md`.

A client's properties are a map: which header came before one of another name cannot be seen there.
"""

import base64
import re
from collections.abc import Iterable, Mapping

Headers = dict[str, list[bytes | None]]
"""The values of each name, in order."""

ORDERING_KEY = "pulsar-ordering-key"
_ENCODED = re.compile(r"(?P<name>.*);(?P<n>[0-9]+);(?P<kind>text|base64|null)", re.DOTALL)


def headers_of(properties: Mapping[str, str]) -> Headers:
    found: dict[str, dict[int, bytes | None]] = {}
    for name, text in properties.items():
        if match := _ENCODED.fullmatch(name):
            values: dict[str, bytes | None] = {"null": None, "text": text.encode()}
            value = base64.b64decode(text) if match["kind"] == "base64" else values[match["kind"]]
            found.setdefault(match["name"], {})[int(match["n"])] = value
        else:
            found.setdefault(name, {})[0] = text.encode()
    return {name: [values[n] for n in sorted(values)] for name, values in found.items()}


def by_name(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    grouped: Headers = {}
    for name, value in headers:
        grouped.setdefault(name, []).append(value)
    return grouped
