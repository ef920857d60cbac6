"""Why a pipeline failed, in one sentence, and whether trying again may help.

When a query ends, Spark raises the text of a Java exception around the text of a Python traceback around the original
sentence.  This module finds that sentence, from the inside out.
"""

import re
from typing import Final

from magnetar.base.errors import ConfigError
from magnetar.pipelines.kinds.kind import NotYet

REASON_CHARS_MAX: Final = 1000

# Raised by our source, sinks and kinds when the declaration, or the topic, has to be changed first.
_FINAL: Final = frozenset(
    (
        "OptionError",
        "SchemaError",
        "ConfigError",
        "DataLost",
        "RowsLost",
        "CredentialsRefused",
        "ReplicatorConfigError",
    )
)
# By Spark: the query cannot be run as it is written, whenever it is tried.
_FINAL_SPARK: Final = frozenset(
    ("AnalysisException", "ParseException", "PySparkTypeError", "PySparkValueError", "PySparkAttributeError")
)
# The last line of a Python traceback.  A class without a package counts only if its name ends in Error or Exception.
_RAISED: Final = re.compile(
    r"^(?P<name>(?:magnetar|pyspark_magnetar)\.[\w.]+|(?:\w+\.)*[A-Z]\w*(?:Error|Exception)): (?P<text>.+)$",
    re.MULTILINE,
)
_CONDITION: Final = re.compile(r"\[(?P<condition>[A-Z][A-Z0-9_.]+)\] ")
_NOISE: Final = re.compile(r"\s*(SQLSTATE: \w+|JVM stacktrace:).*", re.DOTALL)
_OF_A_STREAM: Final = re.compile(r"^.*?\bterminated with exception: ", re.DOTALL)
# Lines in the trace of a Java exception, outermost first.
_CAUSE: Final = re.compile(r"^Caused by: (?P<text>(?:\w+\.)*\w+(?:: (?P<said>.+))?)$", re.MULTILINE)
_OURS: Final = ("magnetar.", "pyspark_magnetar.")
# Kafka's codes.
_REFUSED: Final = re.compile(r"\b(TOPIC|GROUP|CLUSTER|TRANSACTIONAL_ID)_AUTHORIZATION_FAILED\b")
_STREAM: Final = "StreamingQueryException"
_NO_SPACE: Final = re.compile(r"No space left on device|Disk quota exceeded")
_WRAPPERS: Final = frozenset((_STREAM, "PySparkRuntimeError", "PythonException", "SparkException"))


def with_owner(reason: str, owner: str) -> str:
    """The reason, together with the pipeline's owner if the cluster says that the owner lacks a right."""
    if _REFUSED.search(reason) is None:
        return reason
    return _bounded(f"{owner}, who has declared it, has no right to that: {reason}")


def explain(error: BaseException) -> tuple[str, bool]:
    """The reason, and whether trying again may help."""
    if isinstance(error, ConfigError | NotYet):
        return _bounded(str(error)), isinstance(error, NotYet)
    text = str(error).partition("=== Streaming Query ===")[0]
    raised = list(_RAISED.finditer(text))
    # Our own error is the most useful; otherwise the last error of a traceback was raised first.
    ours = [one for one in raised if one["name"].startswith(_OURS)]
    others = [one for one in raised if one["name"].rpartition(".")[2] not in _WRAPPERS]
    if ours:
        name = ours[-1]["name"].rpartition(".")[2]
        return _bounded(ours[-1]["text"]), name not in _FINAL
    kind = type(error).__name__
    if kind in _FINAL_SPARK:
        return _bounded(f"{kind}: {_without_condition(text)}"), False
    if (full := _NO_SPACE.search(text)) is not None:
        return (
            "a disk is full, that of its checkpoint, its table or Spark's temporary files: make room, and it goes on"
            f" by itself ({full[0]})"
        ), True
    if others:
        name = others[-1]["name"].rpartition(".")[2]
        return _bounded(f"{name}: {_without_condition(others[-1]['text'])}"), name not in _FINAL_SPARK
    if kind == _STREAM and _OF_A_STREAM.match(text):
        return _bounded(_with_cause(_without_condition(_OF_A_STREAM.sub("", text)), error)), True
    said = f"{kind}: {_without_condition(text)}" if text.strip() else kind
    return _bounded(_with_cause(said, error)), True


def _with_cause(said: str, error: BaseException) -> str:
    """The sentence, and the innermost cause that the JVM names, unless the sentence contains it."""
    causes = list(_CAUSE.finditer(str(getattr(error, "_stackTrace", ""))))
    if not causes or (causes[-1]["said"] or causes[-1]["text"]) in said:
        return said
    return f"{said.strip()} ({causes[-1]['text']})"


def _without_condition(text: str) -> str:
    """The sentence without its codes for programs, and without stack traces."""
    return _CONDITION.sub("", _NOISE.sub("", text), count=1)


def _bounded(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= REASON_CHARS_MAX else f"{line[: REASON_CHARS_MAX - 3]}..."
