"""Spark's messages as sentences."""

import pytest

from magnetar.pipelines.sql.errors import located, syntax_place, told, unknown_topic
from magnetar.pipelines.sql.names import Names, Topic
from magnetar.pipelines.sql.relations import Relation

SYNTAX = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 't': extra input 't'. SQLSTATE: 42601 (line 2, pos 2)

== SQL ==
select *
frm t
--^^^
"""
COLUMN = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved. Did you mean one of the \
following? [`a`, `b`]. SQLSTATE: 42703; line 1 pos 7;
'Project ['x]
+- LocalRelation [a#1]
"""
CAST = """[CAST_INVALID_INPUT] The value 'a' of the type "STRING" cannot be cast to "INT" because it is malformed. \
Correct the value. SQLSTATE: 22018
== SQL (line 1, position 8) ==
select cast(v as int) from t
"""
WORKER = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source magnetar: Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 1, in main
    raise ValueError("a: b")
ValueError: a: b

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/y.py", line 3, in z
magnetar.pipelines.connector.read.errors.SourceError: topic a: offsets 0 to 9 are deleted; set failOnDataLoss to false
 SQLSTATE: 38000
"""
JVM = "org.apache.spark.SparkException: Job 3 cancelled because of a reason\n\tat org.apache.spark.A.b(A.scala:1)\n"


@pytest.mark.parametrize(
    ("message", "condition", "sentence", "from_python"),
    [
        (SYNTAX, "PARSE_SYNTAX_ERROR", "Syntax error at or near 't': extra input 't'.", False),
        (
            COLUMN,
            "UNRESOLVED_COLUMN.WITH_SUGGESTION",
            "A column with name `x` cannot be resolved. Did you mean one of the following? [`a`, `b`].",
            False,
        ),
        (
            CAST,
            "CAST_INVALID_INPUT",
            'The value \'a\' of the type "STRING" cannot be cast to "INT" because it is malformed. Correct the value.',
            False,
        ),
        (
            WORKER,
            "PYTHON_DATA_SOURCE_ERROR",
            "topic a: offsets 0 to 9 are deleted; set failOnDataLoss to false",
            True,
        ),
        (JVM, None, "org.apache.spark.SparkException: Job 3 cancelled because of a reason", False),
    ],
)
def test_a_message_is_one_sentence(
    message: str, condition: str | None, sentence: str, from_python: bool
) -> None:
    what = told(message)
    assert (what.condition, what.sentence, what.from_python) == (condition, sentence, from_python)


def test_a_message_without_end_is_cut() -> None:
    assert len(told("[X] " + "word " * 10_000).sentence) < 1_100


def test_a_syntax_error_is_shown_in_its_line() -> None:
    text = "select *\nfrm t"
    place = syntax_place(SYNTAX, text)
    assert place == len("select *\nfr")
    assert located("No.", text, place) == "No (line 2, column 3)\n    frm t\n      ^"


def test_a_place_outside_of_the_text_is_none() -> None:
    assert syntax_place("(line 9, pos 1)", "select 1") is None
    assert syntax_place("(line 1, pos 99)", "select 1") == 8
    assert syntax_place("no place", "select 1") is None
    assert located("No.", "select 1", None) == "No."
    assert located("No.", "select 1\n", 9) == "No (line 2, column 1)\n    \n    ^"


def test_an_unknown_topic_comes_with_near_ones_and_its_place() -> None:
    names = Names([Topic("flights", "persistent://public/default/flights", 1)])
    first, second = Relation(("a",), 1, 2, True), Relation(("default", "flihgts"), 5, 6, True)
    found = unknown_topic([first, second], "The table or view `default`.`flihgts` cannot be found", names)
    assert found == ("there is no topic default.flihgts: did you mean flights?", second)
    found = unknown_topic([first], "[REQUIRES_SINGLE_PART_NAMESPACE] ...", names)
    assert found is not None
    assert found[0] == "there is no topic a: `show tables` lists what there is"
    found = unknown_topic([first], "", Names([]))
    assert found is not None
    assert "no topics yet" in found[0]
    assert unknown_topic([], "", names) is None
