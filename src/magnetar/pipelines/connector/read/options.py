"""What `.option(name, value)` accepts when reading, as one checked value.

Names and meanings are those of Spark's `kafka` source, then those of Pulsar's, then a few of our own; the reference
is docs/reference/spark.md.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from magnetar.pipelines.connector.options import Given, Names, OptionError
from magnetar.pipelines.connector.read.positions import (
    EARLIEST,
    LATEST,
    Position,
    parse_assignment,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
)

POLL_TIMEOUT_MS_DEFAULT: Final = 120_000  # Spark: kafkaConsumer.pollTimeoutMs
TRIGGER_DELAY_DEFAULT: Final = "15m"  # Spark: maxTriggerDelay


class ReadMode(Enum):
    """Where records come from; `AUTO` reads files if it can open them, and asks the broker for the rest."""

    AUTO = "auto"
    DIRECT = "direct"
    BROKER = "broker"


class Choice(Enum):
    NAMES = "names"
    PATTERN = "pattern"
    ASSIGNED = "assigned"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which topics: `names`, or those that `pattern` matches, or exactly the partitions of `assigned`."""

    choice: Choice
    option: str
    names: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Address:
    """What the options say about the broker's address; `address.find` makes a `Server` of it."""

    context: str | None
    admin_url: str | None
    bootstrap_servers: str | None
    service_url: str | None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Checked options of one query; `streaming` says of which kind."""

    streaming: bool
    address: Address
    selection: Selection
    start: Position
    end: Position
    start_option: str
    end_option: str
    latest_when_no_timestamp: bool
    partitions_min: int | None
    records_per_partition_max: int | None
    trigger_offsets_max: int | None
    trigger_offsets_min: int | None
    trigger_delay_max_ms: int
    fail_on_data_loss: bool
    include_headers: bool
    include_pulsar_columns: bool
    descriptors: bool
    filter_pushdown: bool
    committed: bool
    subscription: str | None
    replicator_rate: bool
    mode: ReadMode
    timeout_s: float


_TOPIC_OPTIONS: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "topic",
    "topics",
    "topicsPattern",
    "path",
)
_STARTS: Final = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
)  # the first one counts,
_ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")  # as in Spark's kafka source

# No effect, and none is missed.
_WITHOUT_EFFECT: Final = {
    "groupIdPrefix",  # there is no consumer group: Spark's checkpoint is the position
    "fetchOffset.numRetries",  # failed requests are repeated for kafkaConsumer.pollTimeoutMs
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.consumeMaxBatchSize",
    "serialization.format",  # Spark adds it to tables declared in SQL
}

# Consumer settings that only tune Kafka's client, which is not used here.
_KAFKA_WITHOUT_EFFECT: Final = {
    "allow.auto.create.topics",
    "check.crcs",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "exclude.internal.topics",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "group.instance.id",
    "heartbeat.interval.ms",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "partition.assignment.strategy",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
}

_KAFKA_REFUSED: Final = {
    "auto.offset.reset": "say where to begin with startingOffsets",
    "enable.auto.commit": "the position is kept in Spark's checkpoint; leave it out",
    "interceptor.classes": "there is no Kafka consumer that could call them; leave it out",
    "key.deserializer": "keys are always binary: cast the column key",
    "value.deserializer": "values are always binary: cast the column value",
    "group.protocol": "there is no consumer group; leave it out",
}

_OWN: Final = (
    *_TOPIC_OPTIONS,
    *_STARTS,
    *_ENDS,
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "includeHeaders",
    "includePulsarColumns",
    "descriptors",
    "filterPushdown",
    "predefinedSubscription",
    "replicatorRate",
    "read.mode",
    "kafkaConsumer.pollTimeoutMs",
    "context",
    "admin.url",
    "service.url",
    "kafka.bootstrap.servers",
    "kafka.isolation.level",
)

# Options of writing: known names, unlike misspelt ones.
_OF_WRITING: Final = {"kafka.acks", "kafka.compression.type", "acks", "compression", "checkpointlocation"}

_NAMES: Final = Names(
    doing="reading",
    own=_OWN,
    without_effect=_WITHOUT_EFFECT,
    kafka_without_effect=_KAFKA_WITHOUT_EFFECT,
    kafka_refused=_KAFKA_REFUSED,
    kafka_client="consumer",
    instead_of_tls="records are read over HTTP, at admin.url, or as a context says; leave it out",
    of_opposite=_OF_WRITING,
    opposite="writing",
    reference="docs/reference/spark.md",
)


def parse(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check the options of one query; keys in any case.

    Raises:
        OptionError: with one sentence that names the option and the next step.
    """
    given = _NAMES.check(options)
    start_option, start = _position(given, _STARTS, default=LATEST if streaming else EARLIEST)
    end_option, end = _position(given, _ENDS, default=LATEST)
    _check_range(given, start_option, start, end_option, end, streaming=streaming)
    replicator_rate = given.flag("replicatorRate", default=False)
    if replicator_rate and "predefinedSubscription" not in given:
        raise OptionError(
            "option replicatorRate: a rate is of one replicator, which the broker knows by its subscription;"
            " set predefinedSubscription"
        )
    most = given.number("maxOffsetsPerTrigger", None, least=1)
    least = given.number("minOffsetsPerTrigger", None, least=1)
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"option minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger ({most}); make it smaller"
        )
    return ReadOptions(
        streaming=streaming,
        address=_address(given),
        selection=_selection(given),
        start=start,
        end=end,
        start_option=start_option,
        end_option=end_option,
        latest_when_no_timestamp=given.one_of(
            "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, default="error"
        ),
        partitions_min=given.number("minPartitions", None, least=1),
        records_per_partition_max=given.number("maxRecordsPerPartition", None, least=1),
        trigger_offsets_max=most,
        trigger_offsets_min=least,
        trigger_delay_max_ms=_duration_ms(given, "maxTriggerDelay", default=TRIGGER_DELAY_DEFAULT),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_headers=given.flag("includeHeaders", default=False),
        include_pulsar_columns=given.flag("includePulsarColumns", default=False),
        descriptors=given.flag("descriptors", default=False),
        filter_pushdown=given.flag("filterPushdown", default=False),
        committed=given.one_of(
            "kafka.isolation.level",
            {"read_committed": True, "read_uncommitted": False},
            default="read_committed",
        ),
        subscription=given.text("predefinedSubscription"),
        replicator_rate=replicator_rate,
        mode=given.one_of("read.mode", {mode.value: mode for mode in ReadMode}, default="auto"),
        timeout_s=given.number("kafkaConsumer.pollTimeoutMs", POLL_TIMEOUT_MS_DEFAULT, least=1) / 1000,
    )


def _check_range(
    given: Given, start_option: str, start: Position, end_option: str, end: Position, *, streaming: bool
) -> None:
    """Whether a query can read from `start` to `end`, as a stream or at once."""
    if streaming:
        for name in _ENDS:
            if name in given:
                raise OptionError(f"option {name}: a stream has no end; leave it out, or use spark.read")
    else:
        if start.asks_latest:
            raise OptionError(
                f"option {start_option}: a batch that begins at latest (-1) reads nothing;"
                " use earliest, an offset, or spark.readStream"
            )
        if "predefinedSubscription" in given:
            raise OptionError(
                "option predefinedSubscription: spark.read has no moment at which the position could be moved;"
                " use spark.readStream, with trigger(availableNow=True) for one run"
            )
    if end.asks_earliest:
        raise OptionError(
            f"option {end_option}: earliest (-2) is where reading begins; use latest or an offset"
        )


def flag(options: Mapping[str, str], name: str) -> bool:
    """One option that is true or false, and false if it is not given; case does not matter, and no other option is
    looked at.
    """
    values = [value for key, value in options.items() if key.lower() == name.lower()]
    return Given({name: values[-1]} if values else {}).flag(name, default=False)


_DURATION = re.compile(r"(-?[0-9]{1,15})\s*([a-z]*)")
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(given: Given, name: str, *, default: str) -> int:
    text = given.text(name) or default
    match = _DURATION.fullmatch(text.lower())
    if match is None or match[2] not in _UNITS_MS or int(match[1]) < 0:
        raise OptionError(f"option {name}: {text!r} is not a time such as 500ms, 30s, 15m or 1h")
    return int(match[1]) * _UNITS_MS[match[2]]


def _address(given: Given) -> Address:
    admin_url = given.text("admin.url")
    if admin_url is not None and "@" in admin_url:  # the error must not repeat it: it may contain a password
        raise OptionError(
            "option admin.url has a user in it, which no broker is shown; a context says how to log in"
        )
    if admin_url is not None and not re.fullmatch(r"https?://[^/?#\s]+/?", admin_url):
        raise OptionError(f"option admin.url: {admin_url!r} is not an address such as http://127.0.0.1:8080")
    context = given.text("context")
    if context and admin_url:
        raise OptionError("options context and admin.url both say where the broker is; keep one of them")
    address = Address(
        context=context,
        admin_url=admin_url.rstrip("/") if admin_url else None,
        bootstrap_servers=given.text("kafka.bootstrap.servers"),
        service_url=given.text("service.url"),
    )
    if address == Address(None, None, None, None):
        raise OptionError(
            "no option says where the broker is; set admin.url to its HTTP address, such as http://127.0.0.1:8080, or"
            " context to one that says it"
        )
    return address


def _selection(given: Given) -> Selection:
    options = [name for name in _TOPIC_OPTIONS if name in given]
    if not options:
        raise OptionError(
            "no option says which topics to read; set one of subscribe, subscribePattern or assign"
        )
    if len(options) > 1:
        raise OptionError(f"options {' and '.join(options)} both say which topics to read; keep one of them")
    option = options[0]
    text = given.text(option)
    assert text is not None
    if option in ("subscribePattern", "topicsPattern"):
        return Selection(Choice.PATTERN, option, pattern=text)
    if option == "assign":
        return Selection(Choice.ASSIGNED, option, assigned=parse_assignment(option, text))
    names = [text] if option == "topic" else [name.strip() for name in text.split(",")]
    if not all(names):
        raise OptionError(f"option {option}: {text!r} has an empty name in it; separate names by one comma")
    return Selection(Choice.NAMES, option, names=tuple(dict.fromkeys(names)))


_READERS: Final[Mapping[str, Callable[[str, str], Position]]] = {
    "startingTimestamp": parse_timestamp,
    "endingTimestamp": parse_timestamp,
    "startingOffsetsByTimestamp": parse_timestamps,
    "endingOffsetsByTimestamp": parse_timestamps,
    "startingOffsets": parse_offsets,
    "endingOffsets": parse_offsets,
}


def _position(given: Given, names: tuple[str, ...], *, default: Position) -> tuple[str, Position]:
    """The option that counts, and its value.  All that are given are checked."""
    said: list[tuple[str, Position]] = []
    for name in names:
        text = given.text(name)
        if text is not None:
            said.append((name, _READERS[name](name, text)))
    return said[0] if said else (names[-1], default)
