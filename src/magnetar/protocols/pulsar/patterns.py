"""Patterns of topics, as clients write them.

A pattern is matched against `tenant/namespace/topic`, without the domain and without `-partition-N`.  Patterns come
from clients: they are run by RE2, as in Pulsar, which takes time linear in the name whatever the pattern is.
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
    """Whether a full topic name, or one of a partition, is meant by `pattern`.

    Raises:
        InvalidPattern: it is too long or costs too much, or no regular expression that RE2 knows.
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
