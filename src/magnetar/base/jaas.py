"""One entry of a JAAS configuration, as Kafka's keys have it: a login module, a flag, options.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="other";

Words are bare or in quotes of either kind, in which a backslash keeps the next character from its meaning; comments are
those of Java.  Errors do not repeat the text, because it has passwords in it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.errors import ConfigError

_FLAGS: Final = frozenset(("required", "requisite", "sufficient", "optional"))
_TOKEN: Final = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<mark>[=;])"
    r"|(?P<bare>[\w.$-]+)"
    r"|\"(?P<double>(?:[^\"\\]|\\.)*)\""
    r"|'(?P<single>(?:[^'\\]|\\.)*)'",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    module: str
    options: dict[str, str] = field(repr=False)


def jaas_options(name: str, text: str, module: str) -> dict[str, str]:
    """The options of the one entry in `text`, which the setting `name` has, and which must be for `module`.

    Raises:
        ConfigError: it is another one, or none.
    """
    try:
        entry = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(f"{name} {error}") from None
    if entry.module != module:
        raise ConfigError(f"{name} must be for {module}")
    return entry.options


def parse_jaas(text: str) -> JaasEntry:
    """The one entry in `text`.

    Raises:
        ValueError: half a sentence.
    """
    words = list(_words(text))
    if len(words) < 3 or words[-1] != (";", True):
        raise ValueError("must be a login module, a flag and its options, with a semicolon at the end")
    (module, is_mark), (flag, _), *rest = words[:-1]
    if is_mark or flag.lower() not in _FLAGS:
        raise ValueError(
            "must begin with a login module and one of required, requisite, sufficient, optional"
        )
    if (";", True) in rest:
        raise ValueError("must have one login module")
    options: dict[str, str] = {}
    if len(rest) % 3:
        raise ValueError("has an option that is not NAME=VALUE")
    for (name, name_is_mark), equals, (value, value_is_mark) in zip(
        rest[::3], rest[1::3], rest[2::3], strict=True
    ):
        if name_is_mark or equals != ("=", True) or value_is_mark:
            raise ValueError("has an option that is not NAME=VALUE")
        if name in options:
            raise ValueError("has an option twice")
        options[name] = value
    return JaasEntry(module, options)


def _words(text: str) -> Iterator[tuple[str, bool]]:
    """Each word, and whether it is a mark rather than a name or a value."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError("has a character that has to stand in quotes, or a quote that does not end")
        position = found.end()
        kind = found.lastgroup
        if kind in ("double", "single"):
            yield _ESCAPE.sub(lambda one: _ESCAPED.get(one[1], one[1]), found[kind]), False
        elif kind != "space":
            yield found[0], kind == "mark"
