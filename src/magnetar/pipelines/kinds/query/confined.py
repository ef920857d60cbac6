"""Checks the SQL of a pipeline: it may only be one query over its own source.

`SparkSession.sql` executes commands at once (INSERT OVERWRITE DIRECTORY, ADD JAR, SET), a relation may be a file
(text.`/etc/passwd`), TRANSFORM starts programs, and some functions call Java methods or read files.  A client that
may declare pipelines must not get these rights of the worker.  So the text is first parsed, which executes nothing,
and the plan may only have kinds of nodes that are listed here; an unknown kind is refused.  Functions are Spark's
own, except those that reach out of the query.  `${...}` is not replaced, because it would show the worker's
environment.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import ConfigError
from magnetar.pipelines.spark.scala import JavaObject, items
from magnetar.pipelines.spark.with_clause import WITH, scopes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUBSTITUTION: Final = "spark.sql.variable.substitute"

# Spark's names of parsed nodes.
_NODES: Final = frozenset(
    (
        "Aggregate",
        "Distinct",
        "Except",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Intersect",
        "Join",
        "LateralJoin",
        "LocalLimit",
        "LocalRelation",
        "Offset",
        "OneRowRelation",
        "PipeOperator",
        "Pivot",
        "Project",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "Union",
        "UnresolvedEventTimeWatermark",
        "UnresolvedHaving",
        "UnresolvedHint",
        "UnresolvedInlineTable",
        "UnresolvedRelation",
        "UnresolvedSubqueryColumnAliases",
        "UnresolvedTableValuedFunction",
        "Unpivot",
        WITH,
        "WithWindowDefinition",
    )
)
# A name that is computed when the query is analysed could be any name.
_COMPUTED_NAMES: Final = frozenset(("ExpressionWithUnresolvedIdentifier",))
_TABLE_FUNCTIONS: Final = frozenset(
    (
        "explode",
        "explode_outer",
        "inline",
        "inline_outer",
        "json_tuple",
        "posexplode",
        "posexplode_outer",
        "range",
        "stack",
        "variant_explode",
        "variant_explode_outer",
    )
)
# They reach Java methods, and files that an argument or an option names.  By xpath they also reach the URL of a
# document type in a text (`<!DOCTYPE a SYSTEM "http://...">`), which may contain data of rows.
_REACHING: Final = frozenset(
    (
        "call_function",
        "from_avro",
        "from_protobuf",
        "java_method",
        "reflect",
        "schema_of_avro",
        "to_avro",
        "to_protobuf",
        "try_reflect",
        "xpath",
        "xpath_boolean",
        "xpath_double",
        "xpath_float",
        "xpath_int",
        "xpath_long",
        "xpath_number",
        "xpath_short",
        "xpath_string",
    )
)
_OPTIONS_NAME_FILES: Final = {"from_xml": 2, "schema_of_xml": 1}  # {function: arguments without options}
_TREE: Final = "org.apache.spark.sql.catalyst.trees.TreeNode"
_PLAN: Final = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
_ITERABLE: Final = "scala.collection.Iterable"
_PRODUCT: Final = "scala.Product"
_TYPES: Final = (_TREE, _PLAN, _ITERABLE, _PRODUCT)
_LEAVES: Final = frozenset(("Literal", "LocalRelation"))  # values, of which there may be thousands
_BUILTIN: Final = (("builtin",), ("system", "builtin"))


def check_query(spark: "SparkSession", text: str, view: str) -> None:
    """Check that `text` may run in this session; turns off the session's replacement of `${...}`.

    Raises:
        ConfigError: the text is no query, or reaches something other than `view`.
        ParseException: the text is no SQL.
    """
    spark.conf.set(_SUBSTITUTION, "false")
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    for node, kind, hidden, is_plan in _nodes(spark, plan):
        if is_plan and kind not in _NODES:
            raise ConfigError(f"sql must be a query over {view}: {kind} is not allowed in a pipeline")
        if kind == "UnresolvedRelation":
            parts = items(node.multipartIdentifier())
            if len(parts) != 1 or str(parts[0]).lower() not in hidden | {view}:
                name = ".".join(map(str, parts))
                raise ConfigError(
                    f"sql must read from {view}, which is what was declared, and not from {name[:200]}"
                )
        elif kind == "UnresolvedTableValuedFunction":
            _check_function(items(node.name()), 0, _TABLE_FUNCTIONS)
        elif kind == "UnresolvedFunction":
            _check_function(items(node.nameParts()), len(items(node.arguments())))
        elif kind == "UnresolvedGenerator":
            _check_function([node.name().funcName()], len(items(node.children())))
        elif kind in _COMPUTED_NAMES:
            raise ConfigError("sql must name its functions: IDENTIFIER is not allowed in a pipeline")


def _check_function(parts: list[object], arguments: int, allowed: frozenset[str] | None = None) -> None:
    *path, name = (str(part).lower() for part in parts)
    known = (not path or tuple(path) in _BUILTIN) and (allowed is None or name in allowed)
    if not known or name in _REACHING or arguments > _OPTIONS_NAME_FILES.get(name, arguments):
        raise ConfigError(f"sql may not call {'.'.join([*path, name])[:200]}: it reaches out of the query")


def _nodes(spark: "SparkSession", plan: JavaObject) -> Iterator[tuple[JavaObject, str, frozenset[str], bool]]:
    """Every node of a plan, operators and expressions: its kind, the names of the visible CTEs, in lower case, and
    whether it is an operator.

    Spark's own `children` and `expressions` leave out nodes in maps and in stars (`WINDOW w AS`, `|> SET`), so this
    looks into all fields of a node.
    """
    from py4j.java_gateway import JavaObject as Reference

    jvm = spark._jvm
    assert jvm is not None
    types = {
        name: jvm.java.lang.Class.forName(name, False, plan.getClass().getClassLoader()) for name in _TYPES
    }
    waiting: list[tuple[JavaObject, frozenset[str]]] = [(plan, frozenset())]
    while waiting:
        one, hidden = waiting.pop()
        if not isinstance(one, Reference):
            continue  # a text or a number
        if types[_TREE].isInstance(one):
            kind = str(one.nodeName())
            yield one, kind, hidden, bool(types[_PLAN].isInstance(one))
            if kind in _LEAVES:
                continue
            if kind == WITH:
                definitions, query = scopes(one, hidden)
                waiting += [*definitions, query]
                continue
        if types[_ITERABLE].isInstance(one):
            parts = one.iterator()
        elif types[_PRODUCT].isInstance(one):
            parts = one.productIterator()
        else:
            continue
        while parts.hasNext():
            waiting.append((parts.next(), hidden))
