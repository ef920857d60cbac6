"""What `.option(name, value)` accepts when writing, as one checked value.

Names and meanings are those of Spark's `kafka` sink and of Kafka's producer behind `kafka.`; the reference is
docs/reference/spark-writing.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import ConfigError
from magnetar.client.login import Server, kafka_address_at
from magnetar.pipelines.connector.options import INT32_MAX, NAME_PREFIX, Given, Names, OptionError

BATCH_BYTES_DEFAULT: Final = 1 << 20  # brokers accept 12 bytes more by default
BATCH_BYTES_MIN: Final = 1 << 10
TRANSACTION_TIMEOUT_MS_DEFAULT: Final = 900_000  # the most that brokers allow by default
DECISION_TOPIC_DEFAULT: Final = "__spark_sink"
ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
COMPRESSION: Final = {"none": 0, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Checked options of one query.

    context       the name of a context with which to log in; empty if brokers require no login
    topic         the topic of every row; None: the column `topic` names it
    exactly_once  write in transactions
    name_prefix   the beginning of names of transactions
    """

    bootstrap: str
    context: str
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
    name_prefix: str
    fail_on_data_loss: bool


_OWN: Final = (
    "topic",
    "path",
    "includeTimestamp",
    "exactlyOnce",
    "decisionTopic",
    NAME_PREFIX,
    "failOnDataLoss",
    "context",
    "admin.url",
    "service.url",
    "kafka.bootstrap.servers",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.client.id",
    "kafka.compression.type",
    "kafka.delivery.timeout.ms",
    "kafka.enable.idempotence",
    "kafka.max.request.size",
    "kafka.request.timeout.ms",
    "kafka.security.protocol",
    "kafka.transaction.timeout.ms",
)

# No effect, and none is missed.
_WITHOUT_EFFECT: Final = {
    "includeHeaders",  # the column `headers` is always written if there is one
    "checkpointLocation",  # Spark's own
    "queryName",
    "serialization.format",  # Spark adds it to tables declared in SQL
}
_KAFKA_WITHOUT_EFFECT: Final = {
    # A task sends rows as it gets them, in record batches of the greatest size, five requests at a time.
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
    # Connections belong to a Python worker, which opens lost ones again.
    "client.dns.lookup",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "metadata.max.idle.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
    # Metrics of Kafka's client, which is not used here.
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
    "transactional.id": f"a streaming query makes its own, of its id; leave it out, or set {NAME_PREFIX}",
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
_INSTEAD: Final = "TLS and a login come with a context; set the option context"
_NAMES: Final = Names(
    doing="writing",
    own=_OWN,
    without_effect=_WITHOUT_EFFECT,
    kafka_without_effect=_KAFKA_WITHOUT_EFFECT,
    kafka_refused=_KAFKA_REFUSED,
    kafka_client="producer",
    instead_of_tls=_INSTEAD,
    of_opposite=_OF_READING,
    opposite="reading",
    reference="docs/reference/spark-writing.md",
)


def parse(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Check the options of one query; keys in any case.

    Raises:
        OptionError: with one sentence that names the option and the next step.
    """
    given = _NAMES.check(options)
    acks = given.one_of("kafka.acks", ACKS, default="all")
    idempotent = given.flag("kafka.enable.idempotence", default=acks == -1)
    if idempotent and acks != -1:
        raise OptionError(
            "option kafka.enable.idempotence: it needs kafka.acks=all; set that, or leave it out"
        )
    exactly_once = given.flag("exactlyOnce", default=idempotent and streaming)
    if exactly_once and not idempotent:
        raise OptionError(
            "option exactlyOnce: it needs kafka.acks=all and kafka.enable.idempotence=true; change one of them"
        )
    if given.text("context") and given.text("kafka.security.protocol"):
        raise OptionError("options context and kafka.security.protocol both say how to connect; keep context")
    if (given.text("kafka.security.protocol") or "PLAINTEXT").upper() != "PLAINTEXT":
        raise OptionError(f"option kafka.security.protocol: {_INSTEAD}")
    request_timeout_ms = given.number("kafka.request.timeout.ms", 30_000, least=1, most=INT32_MAX)
    return WriteOptions(
        bootstrap=_bootstrap(given),
        context=given.text("context") or "",
        topic=_topic(given),
        client_id=given.text("kafka.client.id") or "magnetar-spark",
        acks=acks,
        idempotent=idempotent,
        compression=given.one_of("kafka.compression.type", COMPRESSION, default="none"),
        batch_bytes=min(
            max(
                given.number("kafka.batch.size", BATCH_BYTES_DEFAULT, least=0, most=INT32_MAX),
                BATCH_BYTES_MIN,
            ),
            given.number(
                "kafka.max.request.size", BATCH_BYTES_DEFAULT, least=BATCH_BYTES_MIN, most=INT32_MAX
            ),
        ),
        request_timeout_ms=request_timeout_ms,
        delivery_timeout_ms=given.number(
            "kafka.delivery.timeout.ms",
            max(120_000, request_timeout_ms),
            least=request_timeout_ms,
            most=INT32_MAX,
        ),
        include_timestamp=given.flag("includeTimestamp", default=False),
        exactly_once=exactly_once,
        transaction_timeout_ms=given.number(
            "kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS_DEFAULT, least=1, most=INT32_MAX
        ),
        decision_topic=given.text("decisionTopic") or DECISION_TOPIC_DEFAULT,
        name_prefix=given.text(NAME_PREFIX) or "",
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
    )


def _bootstrap(given: Given) -> str:
    bootstrap = given.text("kafka.bootstrap.servers")
    if bootstrap is not None:
        return bootstrap
    for name in ("admin.url", "service.url", "context"):  # options that name the server by another port
        address = given.text(name)
        if address is None:
            continue
        try:
            return Server.of(address).kafka_addresses() if name == "context" else kafka_address_at(address)
        except ConfigError as error:
            raise OptionError(f"option {name}: {error}; set kafka.bootstrap.servers") from None
    raise OptionError(
        "no option says where rows are written to; set kafka.bootstrap.servers, such as 127.0.0.1:9092"
    )


def _topic(given: Given) -> str | None:
    if "topic" in given and "path" in given:
        raise OptionError("option topic and save(path) both name a topic; keep one of them")
    name = "topic" if "topic" in given else "path"
    return given.text(name)
