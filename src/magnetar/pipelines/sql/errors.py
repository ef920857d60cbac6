"""The errors of statements, each in a sentence for the user.

Spark's errors have a class in brackets, a code, the plan and a stack.  Only the sentence and the place in the
statement help the user.  If a Python worker failed, the sentence is the last line of its traceback, which comes from
our data source.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import ConfigError, MagnetarError
from magnetar.pipelines.sql.names import Names, quote, quoted
from magnetar.pipelines.sql.relations import Relation


class StatementError(ConfigError):
    """The statement cannot run as it is written; the text says why, where, and what to try."""


class QueryFailed(MagnetarError):
    """The statement is valid, but failed before its end."""


class QueryCancelled(MagnetarError):
    """The user has cancelled the query."""


# Spark's error classes for an unknown table, which depend on how many parts the name has.
UNKNOWN_TABLE: Final = frozenset(
    {
        "TABLE_OR_VIEW_NOT_FOUND",
        "SCHEMA_NOT_FOUND",
        "CATALOG_NOT_FOUND",
        "REQUIRES_SINGLE_PART_NAMESPACE",
        "_LEGACY_ERROR_TEMP_1117",
    }
)

_CONDITION: Final = re.compile(r"\[(?P<condition>[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]\s+")
_AFTER_SENTENCE: Final = re.compile(
    r"\s*SQLSTATE: |;? line \d+,? pos \d+|\n\s*==|\n\nJVM stacktrace", re.DOTALL
)
_PLACE: Final = re.compile(r"\bline (?P<line>\d+),? pos (?P<column>\d+)")
_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"^(?P<type>[A-Za-z_][\w.]*): (?P<text>.+)$", re.MULTILINE)
_SENTENCE_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Told:
    """The parts of Spark's error: its class (None if it has none), the sentence, and whether a worker raised it."""

    condition: str | None
    sentence: str
    from_python: bool


def told(message: str) -> Told:
    """The useful parts of the message of a Spark exception."""
    name = _CONDITION.search(message)
    condition = name["condition"] if name is not None else None
    if _TRACEBACK in message:
        raised = list(_RAISED.finditer(message, message.rindex(_TRACEBACK)))
        if raised:
            return Told(condition, _shortened(raised[-1]["text"]), from_python=True)
    text = message[name.end() :] if name is not None else message
    end = _AFTER_SENTENCE.search(text)
    text = text[: end.start()] if end is not None else text
    if name is None:
        text = text.strip().partition("\n")[0]
    return Told(condition, _shortened(text), from_python=False)


def syntax_place(message: str, text: str) -> int | None:
    """The position in `text` that a syntax error names by line and column."""
    place = _PLACE.search(message)
    if place is None:
        return None
    lines = text.splitlines(keepends=True)
    line = int(place["line"])
    if line > len(lines):
        return None
    return min(sum(map(len, lines[: line - 1])) + int(place["column"]), len(text))


def located(sentence: str, text: str, position: int | None) -> str:
    """`sentence` with the line and column of `position` in `text`, and below it that line with a mark."""
    if position is None or not text:
        return sentence
    before = text[:position]
    line = before.count("\n") + 1
    column = position - (before.rfind("\n") + 1)
    shown = text.splitlines()[line - 1] if line <= len(text.splitlines()) else ""
    mark = " " * column + "^"
    return f"{sentence.rstrip('.')} (line {line}, column {column + 1})\n    {shown}\n    {mark}"


def unknown_topic(unknown: Sequence[Relation], message: str, names: Names) -> tuple[str, Relation] | None:
    """A sentence with the nearest names, and which of the `unknown` relations Spark's `message` is about."""
    if not unknown:
        return None
    about = next(
        (relation for relation in unknown if ".".join(map(quote, relation.parts)) in message), unknown[0]
    )
    near = names.nearest(about.parts)
    if near:
        advice = f"did you mean {' or '.join(near)}?"
    elif names.topics:
        advice = "`show tables` lists what there is"
    else:
        advice = "this server has no topics yet"
    return f"there is no topic {quoted(about.parts)}: {advice}", about


def _shortened(text: str) -> str:
    sentence = " ".join(text.split())
    return sentence if len(sentence) <= _SENTENCE_MAX else f"{sentence[:_SENTENCE_MAX]} ..."
