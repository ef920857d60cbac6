"""Which columns a statement can use, by its text alone.

A Python data source cannot know which columns a query uses.  So columns that the statement cannot use must not be in
the view: `count(*)` must read no values.  A statement uses a column by its name, or by a form that means all columns.
A statement without such a form uses at most the columns whose names occur anywhere in its text, also in comments and in
longer words.  That may be a column too many, but never one too few.
"""

import re
from typing import Final

_COUNT_ALL: Final = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
# Forms that use columns without naming them, or that name them in a string.
_ALL_COLUMNS: Final = re.compile(
    r"\*|\|>|--|(?:^|\(|\b(?:all|union|except|intersect|minus|distinct)\b)\s*from\b"
    r"|\b(?:natural|table|pivot|unpivot|identifier|execute)\b",
    re.IGNORECASE,
)


class Mentions:
    """The columns that the statement `text` can use of its tables; with `all`, every column."""

    def __init__(self, text: str) -> None:
        self._text: Final = text.lower()
        self.all: Final = not text.isascii() or _ALL_COLUMNS.search(_COUNT_ALL.sub("", text)) is not None

    def has(self, column: str) -> bool:
        """Whether the statement may use a column with that name."""
        return self.all or column.lower().replace("`", "``") in self._text
