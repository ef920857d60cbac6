"""Regular expressions that clients send.

RE2 runs them, in time linear in the text that they are matched with, whatever they say.  To read a pattern costs time,
too, on the event loop.  Of all that a pattern can contain, classes of Unicode take the longest: a ten-thousandth of a
second each, as `\\pL` has 650 ranges.  The memory that RE2 may have bounds the rest.  Within the bounds here a pattern
takes 30 ms.
"""

import re
from collections.abc import Callable
from typing import Final

PATTERN_CHARS_MAX: Final = 4096
UNICODE_CLASSES_MAX: Final = 100
_MEMORY_BYTES: Final = 1 << 20
_UNICODE_CLASS: Final = re.compile(r"\\p", re.IGNORECASE)


def whole_matcher(text: str, chars_max: int = PATTERN_CHARS_MAX) -> Callable[[str], bool]:
    """Whether a name as a whole is meant.

    Raises:
        ValueError: the pattern is too long or costs too much, or RE2 does not take it; half a sentence.
    """
    if len(text) > chars_max:
        raise ValueError(f"it is longer than {chars_max} characters")
    if len(_UNICODE_CLASS.findall(text)) > UNICODE_CLASSES_MAX:
        raise ValueError(f"it has more than {UNICODE_CLASSES_MAX} classes of Unicode (\\p)")
    import re2  # 10 ms that a start need not spend

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    try:
        compiled = re2.compile(text, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ValueError(str(reason)) from None
    return lambda name: compiled.fullmatch(name) is not None
