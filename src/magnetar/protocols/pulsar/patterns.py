"""Patterns of topics, as clients write them.

A pattern is matched against `tenant/namespace/topic`, without the domain and without `-partition-N`.  Patterns come
from clients: they are run by RE2, as in Pulsar, which takes time linear in the name whatever the pattern is.
"""

import re
from collections.abc import Callable
from typing import ClassVar, Final

from magnetar.base.errors import BrokerError

PATTERN_CHARS_MAX: Final = 4096
_PARTITION: Final = re.compile(r"-partition-[0-9]+$")


class InvalidPattern(BrokerError):
    """The client's pattern cannot be used."""

    code: ClassVar[str] = "INVALID_PATTERN"


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a full topic name, or one of a partition, is meant by `pattern`.

    Raises:
        InvalidPattern: it is too long, or no regular expression that RE2 knows.
    """
    if len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidPattern(
            f"a topics pattern of {len(pattern)} characters: {PATTERN_CHARS_MAX} are allowed"
        )
    before, scheme, after = pattern.partition("://")
    if scheme:
        pattern = ("^" if before.startswith("^") else "") + after
    import re2  # 10 ms that a start need not spend

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPattern(f"topics pattern {pattern!r} cannot be used: {error}") from error

    def matches(name: str) -> bool:
        _, _, short = name.partition("://")
        return compiled.fullmatch(_PARTITION.sub("", short)) is not None

    return matches
