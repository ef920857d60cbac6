"""Runs one statement, and returns its rows.

Spark parses, plans and runs the statement.  This module finds the topics among its tables, answers SHOW TABLES and
SHOW SCHEMAS, for which Spark would list only views, and turns Spark's errors into one sentence.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from magnetar.pipelines.spark.scala import JavaObject
from magnetar.pipelines.sql.errors import (
    UNKNOWN_TABLE,
    QueryFailed,
    StatementError,
    located,
    syntax_place,
    told,
    unknown_topic,
)
from magnetar.pipelines.sql.mentions import Mentions
from magnetar.pipelines.sql.names import AmbiguousName, Names, Topic, quote, quoted
from magnetar.pipelines.sql.relations import Relation, Rewritten, namespace_of, relations, rewrite
from magnetar.pipelines.sql.views import Schemas, Views

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

# Statements that would change a topic; all other statements of Spark are allowed.
_WRITES: Final = frozenset(
    {"InsertIntoStatement", "DeleteFromTable", "UpdateTable", "MergeIntoTable", "TruncateTable"}
)
_KEEPS: Final = frozenset({"CreateViewCommand", "CreateView", "CacheTable", "CacheTableAsSelect"})
_VIEW: Final = "__magnetar_"
_EVERYTHING: Final = Mentions("*")


class Served(Schemas, Protocol):
    """What the engine asks the server."""

    def topics(self) -> list[Topic]: ...


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of a statement; `cut`: there are more rows than the caller wanted."""

    rows: "pa.Table"
    cut: bool


class Engine:
    """Runs statements in one Spark session; with `options` the data source reaches the server."""

    def __init__(self, spark: "SparkSession", served: Served, options: dict[str, str]) -> None:
        self._spark: Final = spark
        self._served: Final = served
        self._views: Final = Views(spark, served, options)
        self._names = Names(served.topics())
        # A statement is run as it is written: Spark does not replace `${...}` by settings.
        spark.conf.set("spark.sql.variable.substitute", "false")

    @property
    def topic_names(self) -> list[str]:
        """The names in SQL of the topics known so far."""
        return [self._names.written(topic) for topic in self._names.topics]

    def run(self, text: str, rows_max: int | None = None) -> Result:
        """The result of one statement, at most `rows_max` rows of it.

        Raises:
            StatementError: it is not SQL, names something that does not exist, or its types do not match.
            QueryFailed: the query failed before its end.
        """
        plan = self._parse(text)
        kind = str(plan.nodeName())
        if kind.startswith("ShowTables"):
            return _limited(self._show_tables(plan), rows_max)
        if kind.startswith(("ShowNamespaces", "ShowDatabases")):
            return _limited(self._show_schemas(plan), rows_max)
        named = relations(plan, text)
        if kind in _WRITES:
            raise StatementError(
                'topics are only read here: write to one with df.write.format("magnetar"), or with a client'
            )
        mentions = self._mentions(text)
        rewritten, unknown = self._resolve(text, named, mentions)
        if kind in _KEEPS and rewritten.text != text:
            raise StatementError(
                "a view of a topic does not outlive its statement here: begin each query with WITH name AS (...)"
            )
        try:
            return self._query(text, rewritten, unknown, rows_max)
        except StatementError:
            if mentions.all or rewritten.text == text:
                raise
        # The error must name the tables of the statement, not the views that this query reads.
        rewritten, unknown = self._resolve(text, named, _EVERYTHING)
        return self._query(text, rewritten, unknown, rows_max)

    def _mentions(self, text: str) -> Mentions:
        """The columns that the statement may use.  With this setting of Spark, names in backticks are patterns."""
        patterns = self._spark.conf.get("spark.sql.parser.quotedRegexColumnNames") == "true"
        return _EVERYTHING if patterns else Mentions(text)

    def _parse(self, text: str) -> JavaObject:
        from pyspark.errors import ParseException

        try:
            return self._spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
        except ParseException as error:
            message = str(error)
            sentence = told(message).sentence
            raise StatementError(located(sentence, text, syntax_place(message, text))) from None

    def _resolve(
        self, text: str, named: Sequence[Relation], mentions: Mentions
    ) -> tuple[Rewritten, list[Relation]]:
        """The text with views instead of topics, and the names that are no topics."""
        replacements: list[tuple[Relation, str]] = []
        unknown = []
        for relation in named:
            if len(relation.parts) == 1 and self._views.is_there(relation.parts[0]):
                continue
            topic = self._find(relation, text)
            if topic is None:
                unknown.append(relation)
                continue
            view = f"{_VIEW}{len(replacements) + 1}"
            wanted = mentions if relation.queried else _EVERYTHING
            query = self._views.define(topic, view, wanted, used_once=relation.once)
            if relation.queried:
                alias = topic.parts[-1] if "://" in relation.parts[-1] else relation.parts[-1]
                replacements.append((relation, f"(({query}) AS {quote(alias)})"))
            else:
                named_view = f"{view}_named"
                self._spark.sql(query).createOrReplaceTempView(named_view)
                replacements.append((relation, quote(named_view)))
        return rewrite(text, replacements), unknown

    def _find(self, relation: Relation, text: str) -> Topic | None:
        try:
            topic = self._names.find(relation.parts)
            if topic is None:
                self._names = Names(self._served.topics())  # the topic may be new
                topic = self._names.find(relation.parts)
            return topic
        except AmbiguousName as error:
            raise StatementError(located(str(error), text, relation.start)) from None

    def _query(
        self, text: str, rewritten: Rewritten, unknown: Sequence[Relation], rows_max: int | None
    ) -> Result:
        from pyspark.errors import AnalysisException, PySparkException

        try:
            frame = self._spark.sql(rewritten.text)
            if rows_max is not None:
                frame = frame.limit(rows_max + 1)
            return _limited(frame.toArrow(), rows_max)
        except AnalysisException as error:
            raise self._explained(error, text, rewritten, unknown, StatementError) from None
        except PySparkException as error:
            raise self._explained(error, text, rewritten, (), QueryFailed) from None
        except Exception as error:  # py4j's, for a Java exception without its own class here
            from py4j.protocol import Py4JError

            if not isinstance(error, Py4JError):
                raise
            raise QueryFailed(told(str(error)).sentence) from None

    def _explained(
        self,
        error: "PySparkException",
        text: str,
        rewritten: Rewritten,
        unknown: Sequence[Relation],
        kind: type[StatementError] | type[QueryFailed],
    ) -> Exception:
        message = str(error)
        what = told(message)
        if what.from_python:
            return QueryFailed(what.sentence)
        if what.condition is not None and what.condition.partition(".")[0] in UNKNOWN_TABLE:
            found = unknown_topic(unknown, message, self._names)
            if found is not None:
                sentence, relation = found
                return StatementError(located(sentence, text, relation.start))
        return kind(located(what.sentence, text, _place(error, rewritten)))

    def _show_tables(self, plan: JavaObject) -> "pa.Table":
        import pyarrow as pa

        self._names = names = Names(self._served.topics())
        wanted = namespace_of(plan)
        matches = _pattern(plan)
        rows = []
        for topic in names.topics:
            tenant, namespace, name = topic.parts
            here = (tenant, namespace)
            if (
                wanted
                and wanted not in (here, (f"{tenant}/{namespace}",))
                and (wanted != (namespace,) or tenant != names.tenant)
            ):
                continue
            if matches(name):
                rows.append((f"{tenant}.{namespace}", name, names.written(topic), topic.partitions))
        if (
            wanted
            and not rows
            and not any(wanted in (topic.parts[:2], topic.parts[1:2]) for topic in names.topics)
        ):
            raise StatementError(
                f"there is no namespace {quoted(wanted)}: `show schemas` lists what there is"
            )
        columns = list(zip(*rows, strict=True)) or [()] * 4
        kinds = (pa.string(), pa.string(), pa.string(), pa.int32())
        return pa.table(
            [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)],
            names=["namespace", "topic", "name_in_sql", "partitions"],
        )

    def _show_schemas(self, plan: JavaObject) -> "pa.Table":
        import pyarrow as pa

        self._names = names = Names(self._served.topics())
        matches = _pattern(plan)
        spaces = sorted(
            {".".join(topic.parts[:2]) for topic in names.topics} | {f"{names.tenant}.{names.namespace}"}
        )
        return pa.table({"namespace": pa.array([space for space in spaces if matches(space)], pa.string())})


def _pattern(plan: JavaObject) -> Callable[[str], bool]:
    """The pattern after LIKE in a SHOW statement, as a function of a name: `*` is anything, `|` means or; case does
    not matter.
    """
    pattern = plan.pattern()
    if pattern.isEmpty():
        return lambda name: True
    either = [
        re.compile(".*".join(map(re.escape, part.strip().split("*"))), re.IGNORECASE)
        for part in str(pattern.get()).split("|")
    ]
    return lambda name: any(one.fullmatch(name) for one in either)


def _place(error: "PySparkException", rewritten: Rewritten) -> int | None:
    """The position of an error in the original statement; None if Spark does not say."""
    for context in error.getQueryContext():
        if (start := context.startIndex()) >= 0:
            return rewritten.original(start)
    return None


def _limited(rows: "pa.Table", rows_max: int | None) -> Result:
    if rows_max is None or rows.num_rows <= rows_max:
        return Result(rows, cut=False)
    return Result(rows.slice(0, rows_max), cut=True)
