"""Which names the WITH clause of a parsed statement hides, and where: Spark resolves them only when it analyses."""

from typing import Final

from magnetar.pipelines.spark.scala import JavaObject, items

WITH: Final = "UnresolvedWith"
"""Spark's name of the node."""

Scope = tuple[JavaObject, frozenset[str]]
"""A plan, and the names of the CTEs that are known in it, in lower case."""


def scopes(node: JavaObject, known: frozenset[str]) -> tuple[list[Scope], Scope]:
    """The definitions of a WITH that stands where `known` are known, and the query below it.

    A CTE knows those before it, and itself only if the clause is recursive; the query knows all of them.
    """
    definitions = []
    for named in items(node.cteRelations()):
        own = known | {str(named._1()).lower()}
        definitions.append((named._2(), own if node.allowRecursion() else known))
        known = own
    return definitions, (node.child(), known)
