"""Sinks and sources as Pulsar's tools declare them (`SinkConfig`, `SourceConfig`), and the pipelines that they are.

A sink is a pipeline of the kind `table`, a source one of the kind `source`.  The pipeline is named after the connector
(`sink.public.default.orders`), and its configuration has everything that the user declared.  `declared` translates the
words of a tool into that configuration, and `shown` translates it back, so that an update can be merged.  The worker
checks what is in `configs`, as it does for any pipeline.

Magnetar refuses by name what it does not do, and accepts no word without an effect.  docs/reference/connectors.md is
for users.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from magnetar.base.config import closest
from magnetar.base.names import InvalidTopicName, TopicName
from magnetar.broker.jobs.errors import InvalidPipeline
from magnetar.broker.jobs.model import State
from magnetar.broker.usecases.pipelines import PipelineView

BUILTIN: Final = "builtin://"
WORKER: Final = "magnetar"  # one worker runs all connectors
_PART: Final = re.compile(r"[A-Za-z0-9_-]+")
_PARTS: Final = 3  # tenant, namespace and name
_GUARANTEES: Final = ("ATLEAST_ONCE", "EFFECTIVELY_ONCE")
_POSITIONS: Final[Mapping[str, str]] = {"Latest": "latest", "Earliest": "earliest"}
# What a configuration of a table says instead of the topic for records that cannot be read.
_WITHOUT_DEAD_LETTERS: Final = ("fail", "drop")
# What Pulsar's tools may send, with the one value that is true of Magnetar.
_FIXED: Final[Mapping[str, Any]] = {"autoAck": True, "cleanupSubscription": True, "parallelism": 1}
# The order of a partition is kept, whatever is asked for.
_HELD: Final = ("retainKeyOrdering", "retainOrdering")
# Of a source's pipeline; all else in the configs of a source are options of Spark.
_OF_SOURCES: Final = ("column", "database", "password", "path", "schema", "table", "trigger", "user")

# By the word of a configuration: what Magnetar does not do.
UNSERVED: Final[Mapping[str, str]] = {
    "batchBuilder": "A batch builder of a source's producer",
    "batchSourceConfig": "Batch sources",
    "className": "A class of a connector",
    "customRuntimeOptions": "Options of a custom runtime",
    "logLevel": "A log level of a connector",
    "logTopic": "A log topic of a connector",
    "maxMessageRetries": "A number of retries of a message (dead_letter of configs says what happens to it)",
    "negativeAckRedeliveryDelayMs": "A delay of messages that a sink does not take",
    "producerConfig": "Settings of a source's producer",
    "resources": "Resources of one connector (all share those of their worker)",
    "runtimeFlags": "Flags of a connector's runtime",
    "secrets": "Secrets beside configs (configs are stored encrypted, and what is secret in them is not shown)",
    "serdeClassName": "A class that writes values",
    "sourceSubscriptionName": "A name of a sink's subscription (it is named after the sink)",
    "timeoutMs": "A time limit of a message",
    "topicToSchemaProperties": "Properties of a schema with which a sink reads",
    "topicToSchemaType": "A schema with which a sink reads (it reads with the topic's)",
    "topicToSerdeClassName": "A class that reads values",
    "topicsPattern": "A pattern of a sink's inputs",
    "transformFunction": "A function before a sink",
    "transformFunctionClassName": "A function before a sink",
    "transformFunctionConfig": "A function before a sink",
}


class Role(NamedTuple):
    """What sinks have in common, or sources.

    noun      the first part of their pipelines' names
    kind      the kind of their pipelines
    formats   the built-in connectors, and a sentence for users about each
    words     the words of their configurations, besides those of all connectors
    reserved  keys that `configs` may not have, and the word that says the same
    """

    noun: str
    kind: str
    formats: Mapping[str, str]
    words: frozenset[str]
    reserved: Mapping[str, str]

    @property
    def title(self) -> str:
        return self.noun.capitalize()

    @property
    def type_word(self) -> str:
        return f"{self.noun}Type"

    @property
    def config_part(self) -> str:
        """The part of a form that has the configuration."""
        return f"{self.noun}Config"


SINK: Final = Role(
    "sink",
    "table",
    {
        "csv": "Writes a topic to a folder of CSV files, each record once",
        "delta": "Writes a topic to a Delta table, each record once",
        "iceberg": "Writes a topic to an Iceberg table, each record once",
        "jdbc": "Writes a topic to a table of a database, each record once",
        "json": "Writes a topic to a folder of files with a JSON object in each line, each record once",
        "parquet": "Writes a topic to a folder of Parquet files, each record once",
    },
    frozenset(("deadLetterTopic", "inputSpecs", "inputs", "sourceSubscriptionPosition")),
    {"format": "archive", "starting": "sourceSubscriptionPosition", "topics": "inputs"},
)
SOURCE: Final = Role(
    "source",
    "source",
    {
        "csv": "Writes the rows of CSV files, and of those that come into their folder, to a topic, each once",
        "delta": "Writes the rows of a Delta table, and those that are added to it, to a topic, each once",
        "iceberg": "Writes the rows of an Iceberg table, and those that are added to it, to a topic, each once",
        "jdbc": "Writes the rows of a table of a database, and those that are added to it, to a topic, each once",
        "json": "Writes the objects of JSON files, and of those that come into their folder, to a topic, each once",
        "orc": "Writes the rows of ORC files, and of those that come into their folder, to a topic, each once",
        "parquet": "Writes the rows of Parquet files, and of those that come into their folder, to a topic, each once",
        "rate": "Writes rows to a topic at a fixed rate, to try things out",
        "socket": "Writes the lines that a TCP server sends to a topic, to try things out: a restart may lose some",
        "text": "Writes the lines of text files, and of those that come into their folder, to a topic, each once",
    },
    frozenset(("schemaType", "topicName")),
    {"format": "archive", "options": "configs itself", "topic": "topicName"},
)
ROLES: Final[Mapping[str, Role]] = {"sink": SINK, "sinks": SINK, "source": SOURCE, "sources": SOURCE}
_OF_ALL: Final = frozenset(("archive", "configs", "processingGuarantees", *_FIXED, *_HELD))


class Place(NamedTuple):
    """Where a connector is, and its name there."""

    role: Role
    tenant: str
    namespace: str
    name: str

    def pipeline(self) -> str:
        """The name of its pipeline.

        Raises:
            InvalidPipeline: a part has other characters: with a dot in it, two connectors could be one pipeline.
        """
        parts = (self.tenant, self.namespace, self.name)
        for part in parts:
            if _PART.fullmatch(part) is None:
                raise InvalidPipeline(
                    f"tenant, namespace and name of a {self.role.noun} may have ASCII letters, digits, _ and - here,"
                    f" and not {part[:100]!r}"
                )
        return ".".join((self.role.noun, *parts))


def place_of(view: PipelineView, role: Role) -> Place | None:
    """The place of the connector that a pipeline is; None if it is none of this role, or is being deleted."""
    noun, *parts = view.pipeline.name.split(".")
    if noun != role.noun or len(parts) != _PARTS or view.pipeline.kind != role.kind:
        return None
    return None if view.state is State.DELETING else Place(role, *parts)


# --- configurations ----------------------------------------------------------------------------------------------


def declared(place: Place, said: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the pipeline that a tool declares with these words.

    Raises:
        InvalidPipeline: one sentence that names the word.
    """
    role, words = place.role, _said(place, said)
    form = _format(role, words)
    if not form:
        raise InvalidPipeline(f"{role.title} archive not specified: give {BUILTIN}NAME, {_there(role)}")
    configs = words.get("configs", {})
    if not isinstance(configs, dict):
        raise InvalidPipeline(f"configs of a {role.noun} must be an object")
    for name in configs.keys() & role.reserved.keys():
        raise InvalidPipeline(f"configs of a {role.noun} may not have {name}: {role.reserved[name]} says it")
    if role is SINK:
        return {**configs, "format": form, **_of_topics(words, configs)}
    topic = words.get("topicName")
    if not topic:
        raise InvalidPipeline("Topic name cannot be null")
    if str(words.get("schemaType", "json")).lower() != "json":
        raise InvalidPipeline(f"the schema {str(words['schemaType'])[:100]} of a source: its values are JSON")
    own = {name: configs[name] for name in _OF_SOURCES if name in configs}
    options = {name: value for name, value in configs.items() if name not in own}
    return {**own, "format": form, "topic": _topic(topic), "options": options}


def shown(place: Place, config: Mapping[str, Any]) -> dict[str, Any]:
    """The words with which a tool would declare this configuration, secrets included."""
    words: dict[str, Any] = {
        "tenant": place.tenant,
        "namespace": place.namespace,
        "name": place.name,
        "archive": f"{BUILTIN}{config.get('format', 'delta')}",
        "processingGuarantees": _GUARANTEES[1],
        "parallelism": 1,
    }
    if place.role is SOURCE:
        own = {name: config[name] for name in _OF_SOURCES if name in config}
        options = config.get("options")
        options = options if isinstance(options, dict) else {}
        return {**words, "topicName": config.get("topic"), "configs": {**own, **options}}
    left = {name: value for name, value in config.items() if name not in SINK.reserved}
    letters = left.get("dead_letter")
    if letters is not None and letters not in _WITHOUT_DEAD_LETTERS:
        words["deadLetterTopic"] = left.pop("dead_letter")
    topics = config.get("topics")
    position = "Latest" if config.get("starting") == "latest" else "Earliest"
    return {
        **words,
        "inputs": [topics] if isinstance(topics, str) else topics,
        "sourceSubscriptionPosition": position,
        "retainOrdering": True,
        "autoAck": True,
        "cleanupSubscription": True,
        "configs": left,
    }


def changed(place: Place, said: Mapping[str, Any]) -> Callable[[str, Mapping[str, Any]], Mapping[str, Any]]:
    """A function that makes the new configuration from the old one.  It raises InvalidPipeline where Pulsar refuses the
    update.
    """

    def change(kind: str, before: Mapping[str, Any]) -> Mapping[str, Any]:
        role = place.role
        if kind != role.kind:
            raise InvalidPipeline(f"{role.title} {place.name} doesn't exist")
        old = shown(place, before)
        # Only the first start has used it, and Pulsar's tools say it with every update.
        words = {word: value for word, value in said.items() if word != "sourceSubscriptionPosition"}
        same, after = declared(place, old), declared(place, {**old, **_said(place, words)})
        if after["format"] != same["format"]:
            raise InvalidPipeline(f"the connector of a {role.noun} cannot be altered")
        if after.get("topics") != same.get("topics"):
            raise InvalidPipeline("Input Topics cannot be altered")
        if after.get("topic") != same.get("topic"):
            raise InvalidPipeline("Destination topics differ")
        if after == same:
            raise InvalidPipeline("Update contains no change")
        return after

    return change


def _said(place: Place, said: Mapping[str, Any]) -> dict[str, Any]:
    """The words that say something, and mean something here.  Raises InvalidPipeline."""
    role = place.role
    words = {word: value for word, value in said.items() if value not in (None, "", [], {})}
    for word, mine in (("tenant", place.tenant), ("namespace", place.namespace), ("name", place.name)):
        if words.pop(word, mine) != mine:
            raise InvalidPipeline(
                f"the {role.noun}'s {word} is {mine}, and its configuration has another one"
            )
    for word in sorted(words.keys() & UNSERVED.keys()):
        raise InvalidPipeline(f"{UNSERVED[word]}: not supported by Magnetar.")
    for word in sorted(words.keys() - _OF_ALL - role.words - {role.type_word}):
        raise InvalidPipeline(f"Magnetar knows no word {word[:100]!r} of a {role.noun}'s configuration")
    for word, only in _FIXED.items():
        if words.get(word, only) != only:
            raise InvalidPipeline(f"{word} of a {role.noun} is {str(only).lower()} here")
    for word in _HELD:
        if not isinstance(words.get(word, True), bool):
            raise InvalidPipeline(f"{word} of a {role.noun} must be true or false")
    if words.get("processingGuarantees", _GUARANTEES[0]) not in _GUARANTEES:
        raise InvalidPipeline(
            f"processingGuarantees of a {role.noun} must be one of {', '.join(_GUARANTEES)}, which both hold here"
        )
    return words


def _format(role: Role, words: Mapping[str, Any]) -> str:
    """Which connector it is; empty if nothing says so.  Raises InvalidPipeline."""
    archive, kind = words.get("archive", ""), words.get(role.type_word, "")
    if archive and not (isinstance(archive, str) and archive.startswith(BUILTIN)):
        raise InvalidPipeline(
            f"Archives of connectors: not supported by Magnetar. Give {BUILTIN}NAME, {_there(role)}"
        )
    form = str(archive).removeprefix(BUILTIN) or str(kind)
    if archive and kind and kind != form:
        raise InvalidPipeline(f"Cannot specify both archive and {role.noun}-type")
    if form and form not in role.formats:
        meant = closest(form, role.formats)
        raise InvalidPipeline(
            f"there is no built-in {role.noun} {form[:100]!r}: "
            + (f"did you mean {meant}?" if meant else _there(role))
        )
    return form


def _there(role: Role) -> str:
    return f"there are {', '.join(role.formats)}"


def _of_topics(words: Mapping[str, Any], configs: Mapping[str, Any]) -> dict[str, Any]:
    """What a sink says of its topics, in the words of its pipeline.  Raises InvalidPipeline."""
    specs = words.get("inputSpecs", {})
    if not isinstance(specs, dict) or any(
        value not in (None, False, "", {}) for spec in specs.values() for value in _values(spec)
    ):
        raise InvalidPipeline("inputSpecs of a sink: not supported by Magnetar, but for the names of topics")
    topics = _topics([*_list(words.get("inputs", [])), *specs])
    if not topics:
        raise InvalidPipeline("No input topic(s) specified")
    position = words.get("sourceSubscriptionPosition", "Latest")
    if not isinstance(position, str) or position not in _POSITIONS:
        raise InvalidPipeline(f"sourceSubscriptionPosition must be one of {', '.join(_POSITIONS)}")
    letters = words.get("deadLetterTopic")
    if letters and "dead_letter" in configs:
        raise InvalidPipeline("deadLetterTopic and dead_letter of configs say the same: keep one of them")
    more = {"dead_letter": _topic(letters)} if letters else {}
    return {"topics": topics, "starting": _POSITIONS[position], **more}


def _values(spec: Any) -> list[Any]:
    return list(spec.values()) if isinstance(spec, dict) else [spec]


def _list(names: Any) -> list[Any]:
    several = [names] if isinstance(names, str) else names
    if not isinstance(several, list):
        raise InvalidPipeline("inputs of a sink must be a list of topics")
    return several


def _topics(names: Any) -> list[str]:
    return list(dict.fromkeys(_topic(name) for name in _list(names)))


def _topic(name: Any) -> str:
    """The full name of a topic that stores what is written to it.  Raises InvalidPipeline."""
    try:
        found = TopicName.parse(name) if isinstance(name, str) else None
    except InvalidTopicName as error:
        raise InvalidPipeline(str(error)) from None
    if found is None:
        raise InvalidPipeline("a topic's name must be a text")
    if not found.persistent:
        raise InvalidPipeline(f"{name} stores nothing, and a connector needs what a topic has stored")
    return found.full


# --- what it does ------------------------------------------------------------------------------------------------


def status_of(role: Role, view: PipelineView) -> dict[str, Any]:
    """The status of a connector's one instance, in Pulsar's words."""
    numbers = view.status
    rows, failures = _number(numbers.get("rows")), _number(numbers.get("failures"))
    last_error = numbers.get("last_error")
    troubles = []
    if last_error:
        troubles = [{"exceptionString": str(last_error), "timestampMs": view.reported_ms or 0}]
    status = {
        "running": view.state is State.RUNNING,
        "error": view.reason,
        "numRestarts": failures,
        "numSystemExceptions": failures,
        "latestSystemExceptions": troubles,
        "lastReceivedTime": _last_received_ms(numbers.get("last_batch")),
        "workerId": WORKER,
    }
    if role is SINK:
        more: dict[str, Any] = {
            "numReadFromPulsar": rows,
            "numWrittenToSink": rows,
            "numSinkExceptions": 0,
            "latestSinkExceptions": [],
        }
    else:
        more = {
            "numReceivedFromSource": rows,
            "numWritten": rows,
            "numSourceExceptions": 0,
            "latestSourceExceptions": [],
        }
    return {**status, **more}


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _last_received_ms(batch: Any) -> int:
    """When the last batch with rows began; 0 if there was none."""
    try:
        return round(datetime.fromisoformat(batch["at"]).timestamp() * 1000) if batch["rows"] else 0
    except (TypeError, KeyError, ValueError):
        return 0
