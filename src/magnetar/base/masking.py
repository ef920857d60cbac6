"""Secrets in a declared configuration: which parts are, what is shown in their place, how they are taken out of texts.

Only its owner knows what a configuration means.  Here a value is secret when the name above it says so, or when it lies
in options of a store, whose names are the store's.  In doubt a value is hidden: the user who declared it knows it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

HIDDEN: Final = "(hidden)"

_WORDS: Final = (
    "password",
    "passphrase",
    "passwd",
    "pwd",
    "secret",
    "token",
    "key",
    "credential",
    "authorization",
    "signature",
    "jaas",
    "private",
    "webhook",  # a client that knows its address may send there
    "dsn",
)
_PARTS: Final = re.compile(r"(^|[._-])(auth|connection[._-]?(url|string|uri))($|[._-])")
_STORES: Final = "storage_options"  # accounts and keys of object stores, under names of many kinds
_USER: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/@\s]+)@")
_QUERY: Final = re.compile(r"(?P<url>[A-Za-z][A-Za-z0-9+.-]*://[^\s?]+)\?(?P<query>\S+)")
_CHARS_MIN: Final = 4  # shorter ones are in every other word of a text
_PLAIN: Final = frozenset(("true", "false", "null", "none"))


def is_secret(name: str) -> bool:
    """Whether a value of this name is secret."""
    lower = name.lower()
    return lower == _STORES or any(word in lower for word in _WORDS) or _PARTS.search(lower) is not None


def masked(content: Any) -> Any:
    """`content` (of JSON) with `HIDDEN` for whatever is secret in it; names stay."""
    return _masked(content, hide=False)


def secrets_in(content: Any) -> frozenset[str]:
    """The texts that `masked` hides, but for those that look like any other word."""
    found = {text for text in _secrets(content, hide=False) if text.lower() not in _PLAIN}
    return frozenset(text for text in found if len(text) >= _CHARS_MIN)


def scrubbed(content: Any, secrets: frozenset[str]) -> Any:
    """`content` (of JSON) without any of `secrets` in its texts: for what others say about a configuration."""
    if not secrets:
        return content
    if isinstance(content, Mapping):
        return {scrubbed(name, secrets): scrubbed(value, secrets) for name, value in content.items()}
    if isinstance(content, list):
        return [scrubbed(value, secrets) for value in content]
    if isinstance(content, str):
        for secret in sorted(secrets, key=len, reverse=True):
            content = content.replace(secret, HIDDEN)
    return content


def _masked(content: Any, *, hide: bool) -> Any:
    if isinstance(content, Mapping):
        return {name: _masked(value, hide=hide or is_secret(str(name))) for name, value in content.items()}
    if isinstance(content, list):
        return [_masked(value, hide=hide) for value in content]
    if content is None or isinstance(content, bool) or content == "":
        return content
    if hide:
        return HIDDEN
    if isinstance(content, str):
        without_user = _USER.sub(rf"\g<scheme>{HIDDEN}@", content)
        return _QUERY.sub(rf"\g<url>?{HIDDEN}", without_user)
    return content


def _secrets(content: Any, *, hide: bool) -> Iterator[str]:
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _secrets(value, hide=hide or is_secret(str(name)))
    elif isinstance(content, list):
        for value in content:
            yield from _secrets(value, hide=hide)
    elif hide and isinstance(content, str | int | float) and not isinstance(content, bool):
        yield str(content)
    elif isinstance(content, str):
        # Also by themselves: what a library says may have the password and not the name.
        for one in _USER.finditer(content):
            yield from (one["user"], one["user"].partition(":")[2])
        for one in _QUERY.finditer(content):
            yield from (one["query"], *(part.partition("=")[2] for part in one["query"].split("&")))
