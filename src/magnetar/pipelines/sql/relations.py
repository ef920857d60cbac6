"""Finds the tables that a statement names, with Spark's parser, and replaces these names in the statement.

Names in Spark's session catalog have one level, names of topics have three.  So this module replaces each name of a
topic in the text by a query over a view.  The alias is the last part of the name, so that `ops.flights` still has
columns of `flights`.  Each place gets a view of its own, because Spark 4.3 keeps one plan for all places where one
Python data source is used.  Two places with different conditions would read the same records.

Names that a CTE hides are no tables: the scopes of `WITH` are those of SQL.  The rest of the text does not change;
`Rewritten.original` maps a position in the new text to one in the old text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.pipelines.spark.scala import JavaObject, items
from magnetar.pipelines.spark.with_clause import WITH, scopes

# A statement that explains or describes another one has it in a field that a walk over the tree does not reach.
_HOLDERS: Final = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}
_QUERIED: Final = "UnresolvedRelation"
_NAMED: Final = "UnresolvedTableOrView"  # as in DESCRIBE, where no alias may follow


@dataclass(frozen=True, slots=True)
class Relation:
    """A name in a statement: characters `start` to `stop` (exclusive) of its text.

    queried  false if only a name is allowed, as after DESCRIBE
    once     false inside a CTE, which the statement may use more than once
    """

    parts: tuple[str, ...]
    start: int
    stop: int
    queried: bool
    once: bool = True


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A statement's new text, and the places of its replacements."""

    text: str
    # Position and length in the new text, and by how many characters it grew.
    shifts: tuple[tuple[int, int, int], ...]

    def original(self, position: int) -> int:
        """The position in the original statement; for a position inside a replacement, where the replaced name
        begins.
        """
        grown = 0
        for start, length, growth in self.shifts:
            if position < start:
                break
            if position < start + length:
                return start - grown
            grown += growth
        return position - grown


def relations(plan: JavaObject, text: str) -> list[Relation]:
    """The tables that the parsed `plan` of `text` names, in the order of the text, each place once."""
    found: dict[int, Relation] = {}
    for node, kind, hidden, once in _walk(plan, frozenset()):
        if kind not in (_QUERIED, _NAMED):
            continue
        origin = node.origin()
        if origin.startIndex().isEmpty():
            continue
        start, stop = origin.startIndex().get(), origin.stopIndex().get() + 1
        parts = tuple(items(node.multipartIdentifier()))
        if len(parts) == 1 and parts[0].lower() in hidden:
            continue
        queried = kind == _QUERIED and not _after_table(text[:start])
        found[start] = Relation(parts, start, stop, queried, once)
    return [found[start] for start in sorted(found)]


def rewrite(text: str, replacements: Sequence[tuple[Relation, str]]) -> Rewritten:
    """`text` with each relation, in the order of the text, replaced by another text."""
    pieces: list[str] = []
    shifts = []
    copied = length = 0
    for relation, new in replacements:
        pieces += [text[copied : relation.start], new]
        length += relation.start - copied
        shifts.append((length, len(new), len(new) - (relation.stop - relation.start)))
        length += len(new)
        copied = relation.stop
    return Rewritten("".join([*pieces, text[copied:]]), tuple(shifts))


def namespace_of(node: JavaObject) -> tuple[str, ...]:
    """The namespace that a SHOW statement names, () if none."""
    for child, kind, _, _ in _walk(node, frozenset()):
        if kind == "UnresolvedNamespace":
            return tuple(items(child.multipartIdentifier()))
    return ()


def _walk(plan: JavaObject, hidden: frozenset[str]) -> Iterator[tuple[JavaObject, str, frozenset[str], bool]]:
    """Every node of a plan with its kind, the names of the visible CTEs, in lower case, and whether it is outside
    their definitions.
    """
    waiting = [(plan, hidden, True)]
    while waiting:
        node, hidden, once = waiting.pop()
        kind = str(node.nodeName())
        yield node, kind, hidden, once
        if kind == WITH:
            definitions, (query, known) = scopes(node, hidden)
            waiting += [(definition, names, False) for definition, names in definitions]
            waiting.append((query, known, once))
            continue
        below = [*items(node.children()), *items(node.innerChildren())]
        if kind in _HOLDERS:
            below.append(getattr(node, _HOLDERS[kind])())
        waiting += [(one, hidden, once) for one in below]


def _after_table(before: str) -> bool:
    """Whether the name follows the keyword of `TABLE name`, which takes no alias."""
    *_, last = before.rsplit(maxsplit=1) or [""]
    return last.upper().lstrip("(") == "TABLE" and before[-1:].isspace()
