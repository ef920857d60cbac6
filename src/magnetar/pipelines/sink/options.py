"""What `.option(name, value)` takes when writing, as one checked value.

Names and meanings are those of Spark's `kafka` sink and of Kafka's producer behind `kafka.`; the reference is
docs/reference/spark-writing.md.  Nothing is ignored in silence: what is unknown, malformed or contradictory is an
`OptionError`, and what has no effect here stands in a table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeVar
from urllib.parse import urlsplit

from magnetar.pipelines.sink.errors import OptionError

T = TypeVar("T")

BATCH_BYTES_DEFAULT: Final = 1 << 20  # brokers take 12 bytes more by default
BATCH_BYTES_MIN: Final = 1 << 10
KAFKA_PORT_DEFAULT: Final = 9092
TRANSACTION_TIMEOUT_MS_DEFAULT: Final = 900_000  # what brokers allow at most by default
DECISION_TOPIC_DEFAULT: Final = "__spark_sink"
ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
COMPRESSION: Final = {"none": 0, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Checked options of one query.

    topic         where every row goes; None: the column `topic` says it
    exactly_once  write in transactions
    """

    bootstrap: str
    topic: str | None
    client_id: str
    acks: int
    idempotent: bool
    compression: int
    batch_bytes: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    include_timestamp: bool
    exactly_once: bool
    transaction_timeout_ms: int
    decision_topic: str
    fail_on_data_loss: bool


_OWN: Final = (
    "topic",
    "path",
    "includeTimestamp",
    "exactlyOnce",
    "decisionTopic",
    "failOnDataLoss",
    "admin.url",
    "service.url",
)
_KAFKA: Final = (
    "bootstrap.servers",
    "acks",
    "batch.size",
    "client.id",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "max.request.size",
    "request.timeout.ms",
    "security.protocol",
    "transaction.timeout.ms",
)

# No effect, and none is missed.
_WITHOUT_EFFECT: Final = {
    "includeHeaders",  # the column `headers` is written wherever there is one
    "checkpointLocation",  # Spark's own
    "queryName",
    "serialization.format",  # Spark adds it to tables declared in SQL
}
_KAFKA_WITHOUT_EFFECT: Final = {
    # A task sends what it has as it gets it, in record batches as large as they may be, five requests at a time.
    "buffer.memory",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "receive.buffer.bytes",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    # Connections belong to a Python worker and are opened again when they are lost.
    "client.dns.lookup",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "metadata.max.idle.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
    # Metrics of a client that is not there.
    "enable.metrics.push",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
}
_KAFKA_REFUSED: Final = {
    "interceptor.classes": "no Kafka producer is there to call them; leave it out",
    "key.serializer": "keys are written as they are: cast the column key to string or binary",
    "value.serializer": "values are written as they are: cast the column value to string or binary",
    "partitioner.class": "say the partition of each row in a column partition",
    "partitioner.ignore.keys": "leave the column key out, or say the partition of each row in a column partition",
    "transactional.id": "a streaming query makes its own, of its id; leave it out",
}
_KNOWN: Final = {
    name.lower(): name for name in (*_OWN, *_WITHOUT_EFFECT, *(f"kafka.{name}" for name in _KAFKA))
}
_OF_READING: Final = {
    "subscribe",
    "subscribepattern",
    "assign",
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "minpartitions",
    "maxoffsetspertrigger",
    "kafka.isolation.level",
    "kafka.group.id",
}


def parse(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Check the options of one query; keys in any case.

    Raises:
        OptionError: with one sentence that names the option and the next step.
    """
    given = _known(options)
    acks = _one_of(given, "kafka.acks", ACKS, default="all")
    idempotent = _flag(given, "kafka.enable.idempotence", default=acks == -1)
    if idempotent and acks != -1:
        raise OptionError(
            "option kafka.enable.idempotence: it needs kafka.acks=all; set that, or leave it out"
        )
    exactly_once = _flag(given, "exactlyOnce", default=idempotent and streaming)
    if exactly_once and not idempotent:
        raise OptionError(
            "option exactlyOnce: it needs kafka.acks=all and kafka.enable.idempotence=true; change one of them"
        )
    if _text(given, "kafka.security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
        raise OptionError(
            "option kafka.security.protocol: only PLAINTEXT is spoken; use a listener without TLS and SASL"
        )
    request_timeout_ms = _number(given, "kafka.request.timeout.ms", 30_000, least=1)
    return WriteOptions(
        bootstrap=_bootstrap(given),
        topic=_topic(given),
        client_id=_text(given, "kafka.client.id", "magnetar-spark"),
        acks=acks,
        idempotent=idempotent,
        compression=_one_of(given, "kafka.compression.type", COMPRESSION, default="none"),
        batch_bytes=min(
            max(_number(given, "kafka.batch.size", BATCH_BYTES_DEFAULT, least=0), BATCH_BYTES_MIN),
            _number(given, "kafka.max.request.size", BATCH_BYTES_DEFAULT, least=BATCH_BYTES_MIN),
        ),
        request_timeout_ms=request_timeout_ms,
        delivery_timeout_ms=_number(
            given, "kafka.delivery.timeout.ms", max(120_000, request_timeout_ms), least=request_timeout_ms
        ),
        include_timestamp=_flag(given, "includeTimestamp", default=False),
        exactly_once=exactly_once,
        transaction_timeout_ms=_number(
            given, "kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS_DEFAULT, least=1
        ),
        decision_topic=_text(given, "decisionTopic", DECISION_TOPIC_DEFAULT),
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
    )


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """The options under their own names; what is not known is an error."""
    given: dict[str, str] = {}
    for key, value in options.items():
        lower = key.lower()
        if lower in _KNOWN:
            given[_KNOWN[lower]] = value
        elif lower in _OF_READING:
            raise OptionError(f"option {key} is one of reading; leave it out when writing")
        elif lower.startswith("kafka."):
            _check_kafka(lower.removeprefix("kafka."))
        else:
            raise OptionError(f"option {key} is not known{_hint(lower)}")
    return given


def _hint(lower: str) -> str:
    near = get_close_matches(lower, _KNOWN, n=1)
    if near:
        return f"; did you mean {_KNOWN[near[0]]}?"
    return "; docs/reference/spark-writing.md lists all there are"


def _check_kafka(name: str) -> None:
    """A setting of Kafka's producer that is not in `_KNOWN`."""
    if name in _KAFKA_WITHOUT_EFFECT:
        return
    if name in _KAFKA_REFUSED:
        raise OptionError(f"option kafka.{name} cannot be honoured: {_KAFKA_REFUSED[name]}")
    if name.startswith(("sasl.", "ssl.")):
        raise OptionError(
            f"option kafka.{name} cannot be honoured: only PLAINTEXT is spoken; use a listener without TLS and SASL"
        )
    near = get_close_matches(name, [*_KAFKA, *_KAFKA_WITHOUT_EFFECT], n=1)
    raise OptionError(
        f"option kafka.{name} is not a setting of Kafka's producer"
        + (f"; did you mean kafka.{near[0]}?" if near else "; leave it out")
    )


def _bootstrap(given: Mapping[str, str]) -> str:
    bootstrap = _text(given, "kafka.bootstrap.servers", "")
    if bootstrap:
        return bootstrap
    for name in ("admin.url", "service.url"):  # of a server that is known by another of its ports
        if name not in given:
            continue
        try:
            host = urlsplit(_text(given, name, "").partition(",")[0]).hostname
        except ValueError:
            host = None
        if not host:
            raise OptionError(f"option {name}: {given[name]!r} is no address; set kafka.bootstrap.servers")
        return f"[{host}]:{KAFKA_PORT_DEFAULT}" if ":" in host else f"{host}:{KAFKA_PORT_DEFAULT}"
    raise OptionError(
        "no option says where rows are written to; set kafka.bootstrap.servers, such as 127.0.0.1:9092"
    )


def _topic(given: Mapping[str, str]) -> str | None:
    if "topic" in given and "path" in given:
        raise OptionError("option topic and save(path) both name a topic; keep one of them")
    name = "topic" if "topic" in given else "path"
    return _text(given, name, "") or None


def _text(given: Mapping[str, str], name: str, default: str) -> str:
    value = given.get(name)
    if value is None:
        return default
    if not value.strip():
        raise OptionError(f"option {name} is empty; give it a value or leave it out")
    return value.strip()


def _number(given: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = _text(given, name, str(default))
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value < 1 << 31:
        raise OptionError(f"option {name}: {text!r} is not a whole number of at least {least}")
    return value


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _one_of(given, name, {"true": True, "false": False}, default=str(default).lower())


def _one_of(given: Mapping[str, str], name: str, values: Mapping[str, T], *, default: str) -> T:
    text = _text(given, name, default).lower()
    if text not in values:
        raise OptionError(f"option {name}: {text!r} is none of {', '.join(values)}")
    return values[text]
