"""Patterns of topics, as clients write them.

A pattern is matched against `tenant/namespace/topic`, without the domain and without `-partition-N`.  Because clients
choose patterns, RE2 runs them, as in Pulsar: it takes time linear in the name for any pattern.
"""

import re
from collections.abc import Callable
from typing import ClassVar, Final

from magnetar.base.errors import BrokerError
from magnetar.base.patterns import whole_matcher

_PARTITION: Final = re.compile(r"-partition-[0-9]+$")


class InvalidPattern(BrokerError):
    """The client's pattern cannot be used."""

    code: ClassVar[str] = "INVALID_PATTERN"


def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that returns whether `pattern` matches a full name of a topic or partition.

    Raises:
        InvalidPattern: the pattern is too long, costs too much, or is no regular expression of RE2.
    """
    before, scheme, after = pattern.partition("://")
    if scheme:
        pattern = ("^" if before.startswith("^") else "") + after
    try:
        is_meant = whole_matcher(pattern)
    except ValueError as error:
        raise InvalidPattern(f"topics pattern {pattern[:200]!r} cannot be used: {error}") from error

    def matches(name: str) -> bool:
        _, _, short = name.partition("://")
        return is_meant(_PARTITION.sub("", short))

    return matches
