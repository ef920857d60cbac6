"""Which columns a statement can use, by its text alone.

Spark does not tell a Python data source which columns a query uses, so what no statement can use must not be asked for
in the first place: `count(*)` is to read no values.  A column can only be used by its name, or by a form that stands
for all columns.  So a statement that has none of these forms uses, at most, the columns whose names occur anywhere in
its text, in a comment or as a part of a longer word too: that is often one too many and never one too few.
"""

import re
from typing import Final

_COUNT_ALL: Final = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
# What brings in columns that it does not name, or names in a string.
_ALL_COLUMNS: Final = re.compile(
    r"\*|\|>|--|(?:^|\(|\b(?:all|union|except|intersect|minus|distinct)\b)\s*from\b"
    r"|\b(?:natural|table|pivot|unpivot|identifier|execute)\b",
    re.IGNORECASE,
)


class Mentions:
    """What the statement `text` can use of its tables; with `all`, any column."""

    def __init__(self, text: str) -> None:
        self._text: Final = text.lower()
        self.all: Final = not text.isascii() or _ALL_COLUMNS.search(_COUNT_ALL.sub("", text)) is not None

    def has(self, column: str) -> bool:
        """Whether it may use a column of that name."""
        return self.all or column.lower().replace("`", "``") in self._text
