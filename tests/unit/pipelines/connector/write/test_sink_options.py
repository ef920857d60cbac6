"""Options of writing: Spark's and Kafka's names, and one sentence for what is wrong."""

from pathlib import Path

import pytest

from magnetar.base.contexts import Context, Contexts, write_contexts
from magnetar.pipelines.connector.options import OptionError
from magnetar.pipelines.connector.write.options import BATCH_BYTES_DEFAULT, parse

WHERE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_defaults_are_exactly_once() -> None:
    options = parse({**WHERE, "topic": "t"}, streaming=True)
    assert options.topic == "t"
    assert (options.acks, options.idempotent, options.exactly_once) == (-1, True, True)
    assert options.batch_bytes == BATCH_BYTES_DEFAULT
    assert options.transaction_timeout_ms == 900_000
    assert options.fail_on_data_loss
    assert not parse({**WHERE, "topic": "t"}, streaming=False).exactly_once


def test_names_in_any_case_and_kafkas_settings() -> None:
    options = parse(
        {
            "Kafka.Bootstrap.Servers": "a:1,b:2",
            "path": "t",
            "kafka.acks": "1",
            "kafka.compression.type": "ZSTD",
            "kafka.linger.ms": "50",
            "kafka.batch.size": "16384",
            "checkpointLocation": "/somewhere",
        },
        streaming=True,
    )
    assert options.bootstrap == "a:1,b:2"
    assert options.topic == "t"
    assert (options.acks, options.idempotent, options.exactly_once) == (1, False, False)
    assert (options.compression, options.batch_bytes) == (4, 16_384)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topik": "t"}, "option topik is not known; did you mean topic?"),
        ({"kafka.ackz": "1"}, "did you mean kafka.acks?"),
        ({"kafka.acks": "2"}, "option kafka.acks: '2' is none of all, -1, 0, 1"),
        ({"kafka.compression.type": "rar"}, "option kafka.compression.type"),
        ({"startingOffsets": "earliest"}, "one of reading"),
        ({"kafka.value.serializer": "x"}, "cast the column value"),
        ({"kafka.transactional.id": "x"}, "leave it out"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "set the option context"),
        ({"kafka.security.protocol": "SSL"}, "set the option context"),
        ({"kafka.security.protocol": "PLAINTEXT", "context": "a"}, "both say how to connect; keep context"),
        ({"kafka.acks": "1", "exactlyOnce": "true"}, "option exactlyOnce: it needs kafka.acks=all"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "it needs kafka.acks=all"),
        ({"kafka.batch.size": "many"}, "is not a whole number"),
        ({"kafka.delivery.timeout.ms": "5"}, "of at least 30000"),
        ({"topic": "a", "path": "b"}, "both name a topic"),
        ({"topic": " "}, "option topic is empty"),
    ],
)
def test_what_is_wrong_is_one_sentence(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as failure:
        parse({**WHERE, **given}, streaming=True)
    assert says in str(failure.value)


def test_the_usual_port_of_a_server_that_is_known_by_another_one() -> None:
    assert parse({"admin.url": "http://broker:8080"}, streaming=False).bootstrap == "broker:9092"
    assert (
        parse({"service.url": "pulsar://[::1]:6650,pulsar://b:6650"}, streaming=False).bootstrap
        == "[::1]:9092"
    )
    with pytest.raises(OptionError, match=r"option admin\.url"):
        parse({"admin.url": "broker"}, streaming=False)


def test_a_context_says_where_brokers_are(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    for context, brokers in (
        (Context("https://a:8443"), "a:9092"),
        (Context("https://a", kafka="b:1,c:2"), "b:1,c:2"),
    ):
        write_contexts(file, Contexts({"one": context}, "one"))
        assert parse({"context": str(file)}, streaming=False).bootstrap == brokers


def test_an_address_is_needed() -> None:
    with pytest.raises(OptionError, match=r"set kafka\.bootstrap\.servers"):
        parse({"topic": "t"}, streaming=False)
