import pytest

from magnetar.base.errors import ConfigError
from magnetar.client.errors import Unreachable
from magnetar.pipelines.worker.failures import REASON_CHARS_MAX, explain, with_owner

STREAM = """[STREAM_FAILED] Query [id = 1f, runId = 2e] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset: \
Traceback (most recent call last):
  File "/x/pyspark/sql/worker/python_streaming_source_runner.py", line 200, in main
    handle(reader)
  File "/x/magnetar/pipelines/connector/read/stream.py", line 80, in latestOffset
    raise kind("topic orders is gone")
{raised}
 SQLSTATE: 38000 SQLSTATE: XXKST"""


class StreamingQueryException(Exception):
    """Named as Spark's."""

    _stackTrace = ""


def traced(text: str, *causes: str) -> StreamingQueryException:
    """As PySpark gives it: with the JVM's trace beside the text."""
    error = StreamingQueryException(text)
    trace = "".join(f"Caused by: {cause}\n\tat org.apache.spark.X.y(X.scala:1)\n" for cause in causes)
    error._stackTrace = (
        f"org.apache.spark.SparkException: {text}\n\tat org.apache.spark.A.b(A.scala:9)\n{trace}"
    )
    return error


class AnalysisException(Exception):
    """Named as Spark's."""


@pytest.mark.parametrize(
    ("error", "reason", "may_help"),
    [
        (ConfigError("sql must be a text"), "sql must be a text", False),
        (Unreachable("nobody is there"), "Unreachable: nobody is there", True),
        (
            StreamingQueryException(
                STREAM.replace(
                    "{raised}", "magnetar.pipelines.connector.read.errors.TopicError: topic orders is gone"
                )
            ),
            "topic orders is gone",
            True,
        ),
        (
            StreamingQueryException(
                STREAM.replace(
                    "{raised}", "magnetar.pipelines.connector.read.errors.DataLost: offsets 0-9 are deleted"
                )
            ),
            "offsets 0-9 are deleted",
            False,
        ),
        (
            StreamingQueryException(
                STREAM.replace("{raised}", "magnetar.replicators.errors.CredentialsRefused: wrong password")
            ),
            "wrong password",
            False,
        ),
        (
            StreamingQueryException(
                STREAM.replace("{raised}", "magnetar.replicators.errors.TargetUnavailable: no broker answers")
            ),
            "no broker answers",
            True,
        ),
        (
            StreamingQueryException(
                STREAM.replace("{raised}", "ConnectionResetError: [Errno 104] reset by peer")
            ),
            "ConnectionResetError: [Errno 104] reset by peer",
            True,
        ),
        (
            StreamingQueryException(
                STREAM.replace(
                    "{raised}", "OSError: [Errno 28] Error writing bytes to file. No space left on device"
                )
            ),
            "a disk is full, that of its checkpoint, its table or Spark's temporary files: make room, and it goes on by"
            " itself (No space left on device)",
            True,
        ),
        (
            StreamingQueryException(
                "[STREAM_FAILED] Query [id = 1f, runId = 2e] terminated with exception: Broken pipe SQLSTATE: XXKST\n"
                "=== Streaming Query ===\nIdentifier: copy [id = 1f]\nCurrent State: ACTIVE\nThread State: RUNNABLE"
            ),
            "Broken pipe",
            True,
        ),
        (
            AnalysisException(
                "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703"
            ),
            "AnalysisException: A column `x` cannot be resolved.",
            False,
        ),
        (
            traced(
                "Task not serializable",
                "org.apache.spark.SparkException: Task not serializable",
                "java.io.NotSerializableException: org.example.Handle",
            ),
            "StreamingQueryException: Task not serializable"
            " (java.io.NotSerializableException: org.example.Handle)",
            True,
        ),
        (
            traced("the disk has gone", "java.io.IOException: the disk has gone"),
            "StreamingQueryException: the disk has gone",
            True,
        ),
        (
            traced("Job aborted", "java.lang.StackOverflowError"),
            "StreamingQueryException: Job aborted (java.lang.StackOverflowError)",
            True,
        ),
        (OSError(5, "Input/output error"), "OSError: [Errno 5] Input/output error", True),
        (
            OSError(28, "No space left on device"),
            "a disk is full, that of its checkpoint, its table or Spark's temporary files: make room, and it goes on by"
            " itself (No space left on device)",
            True,
        ),
        (ValueError(), "ValueError", True),
    ],
)
def test_the_reason_is_what_was_said_in_the_first_place(
    error: Exception, reason: str, may_help: bool
) -> None:
    assert explain(error) == (reason, may_help)


def test_a_reason_is_one_line_and_bounded() -> None:
    reason, _ = explain(RuntimeError("a\n" * 10_000))
    assert len(reason) == REASON_CHARS_MAX
    assert "\n" not in reason


def test_a_refusal_by_kafkas_codes_says_whose_right_is_missing() -> None:
    refused = "finding out about topic 'to': the broker answers TOPIC_AUTHORIZATION_FAILED"
    said = with_owner(refused, "User:alice")
    assert said == f"User:alice, who has declared it, has no right to that: {refused}"
    other = "the broker at http://here refused: User:alice is not authorized to READ topic a"
    assert with_owner(other, "User:alice") == other
