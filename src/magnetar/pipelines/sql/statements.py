"""Where one SQL statement ends and the next begins, by the lexical rules of Spark SQL.

A `;` ends a statement unless it is in a string, a quoted name or a comment.  Strings are in single or double quotes,
with a backslash before a character that must not end them; after the prefix `r` a backslash is an ordinary character.
Names are quoted with backticks.  `--` comments end with their line, `/* */` comments nest.  This module understands
no more: Spark's parser checks statements.
"""

import re
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?<!\w)[rR](?:'[^']*'|"[^"]*")                          # a string without escapes
    | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*`         # `` inside a name reads as two names side by side
    | (?P<line_comment>--(?:\\\n|[^\n])*)
    | (?P<comment>/\*)
    | (?P<open>['"`])                                         # none of the above: it is not closed
    | (?P<end>;)
    | (?P<space>\s+)
    | [^'"`;\s/rR-]+ | .
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Split:
    """`statements` are complete, without their `;`, and not blank; `rest` is the incomplete text after them."""

    statements: list[str]
    rest: str

    @property
    def rest_is_blank(self) -> bool:
        """Whether only space and complete comments are left."""
        return is_blank(self.rest)


def split(text: str) -> Split:
    """Cut `text` at every `;` that ends a statement."""
    statements = []
    begin = position = 0
    while (match := _next(text, position)) is not None:
        position = match[0]
        if match[1] == "end":
            statement = text[begin : position - 1]
            if not is_blank(statement):
                statements.append(statement.strip())
            begin = position
    return Split(statements, text[begin:])


def is_blank(text: str) -> bool:
    """Whether `text` has only space and complete comments."""
    position = 0
    while (match := _next(text, position)) is not None:
        position = match[0]
        if match[1] not in ("space", "line_comment", "comment"):
            return False
    return position == len(text)


def _next(text: str, position: int) -> tuple[int, str | None] | None:
    """The end and kind of the token at `position`; None at the end of the text, and if the token is not closed."""
    match = _TOKEN.match(text, position)
    if match is None or match.lastgroup == "open":
        return None
    if match.lastgroup == "comment":
        end = _comment_end(text, match.end())
        return None if end is None else (end, "comment")
    return match.end(), match.lastgroup


def _comment_end(text: str, position: int) -> int | None:
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, position):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return None
