"""Which names the WITH clause of a parsed statement hides, and where; Spark resolves them only in its analysis."""

from typing import Final

from magnetar.pipelines.spark.scala import JavaObject, items

WITH: Final = "UnresolvedWith"
"""Spark's name of the node."""

Scope = tuple[JavaObject, frozenset[str]]
"""A plan, and the names of the CTEs that are visible in it, in lower case."""


def scopes(node: JavaObject, known: frozenset[str]) -> tuple[list[Scope], Scope]:
    """The scopes of a WITH's definitions, and of the query below it; `known` are the names that are visible there.

    In a CTE those before it are visible, and itself only if the clause is recursive; in the query all are visible.
    """
    definitions = []
    for named in items(node.cteRelations()):
        own = known | {str(named._1()).lower()}
        definitions.append((named._2(), own if node.allowRecursion() else known))
        known = own
    return definitions, (node.child(), known)
