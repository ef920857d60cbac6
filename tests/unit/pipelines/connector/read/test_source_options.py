"""Options of the data source: what is taken, and what is refused with which words."""

import pytest

from magnetar.pipelines.connector.options import OptionError
from magnetar.pipelines.connector.read.datasource import schema_of
from magnetar.pipelines.connector.read.options import Choice, ReadMode, parse
from magnetar.pipelines.connector.read.positions import EARLIEST, LATEST, Kind, TopicPartition

BASE = {"subscribe": "flights", "admin.url": "http://127.0.0.1:8080"}


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    batch, stream = parse(BASE, streaming=False), parse(BASE, streaming=True)
    assert (batch.start, batch.end) == (EARLIEST, LATEST)
    assert stream.start == LATEST
    assert batch.committed
    assert batch.fail_on_data_loss
    assert batch.mode is ReadMode.AUTO
    assert batch.timeout_s == 120
    assert stream.trigger_delay_max_ms == 900_000
    assert not batch.include_headers


def test_names_are_taken_in_any_case_as_spark_hands_them_over() -> None:
    options = parse(
        {"SUBSCRIBE": "a, b,a", "Admin.URL": "http://h:1/", "failondataloss": "FALSE", "read.MODE": "Broker"},
        streaming=False,
    )
    assert options.selection.names == ("a", "b")
    assert options.address.admin_url == "http://h:1"
    assert not options.fail_on_data_loss
    assert options.mode is ReadMode.BROKER


@pytest.mark.parametrize(
    ("option", "value", "choice"),
    [
        ("subscribe", "a,b", Choice.NAMES),
        ("topics", "a,b", Choice.NAMES),
        ("topic", "a", Choice.NAMES),
        ("path", "a", Choice.NAMES),
        ("subscribePattern", "a.*", Choice.PATTERN),
        ("topicsPattern", "a.*", Choice.PATTERN),
        ("assign", '{"a": [1, 0]}', Choice.ASSIGNED),
    ],
)
def test_every_way_to_choose_topics(option: str, value: str, choice: Choice) -> None:
    selection = parse({"admin.url": "http://h:1", option: value}, streaming=True).selection
    assert (selection.choice, selection.option) == (choice, option)
    if choice is Choice.ASSIGNED:
        assert selection.assigned == (("a", (0, 1)),)


def test_of_several_starts_the_one_that_counts_in_spark_counts() -> None:
    options = parse(
        {
            **BASE,
            "startingOffsets": "earliest",
            "startingTimestamp": "17",
            "startingOffsetsByTimestamp": '{"a":{"0":9}}',
        },
        streaming=False,
    )
    assert options.start.kind is Kind.TIMESTAMP
    assert options.start.timestamp_of(TopicPartition("a", 0)) == 17
    assert options.start_option == "startingTimestamp"


def test_offsets_as_json() -> None:
    position = parse({**BASE, "startingOffsets": '{"flights":{"0":23,"1":-2}}'}, streaming=False).start
    assert position.each == ((TopicPartition("flights", 0), 23), (TopicPartition("flights", 1), -2))


@pytest.mark.parametrize("text", ["90", "90ms", "1s", "2 m", "3min", "1h", "1d"])
def test_times_as_spark_writes_them(text: str) -> None:
    units = {
        "90": 90,
        "90ms": 90,
        "1s": 1000,
        "2 m": 120_000,
        "3min": 180_000,
        "1h": 3_600_000,
        "1d": 86_400_000,
    }
    assert parse({**BASE, "maxTriggerDelay": text}, streaming=True).trigger_delay_max_ms == units[text]


@pytest.mark.parametrize(
    "name",
    [
        "kafka.group.id",
        "kafka.max.poll.records",
        "groupIdPrefix",
        "kafka.client.id",
        "fetchOffset.numRetries",
    ],
)
def test_what_only_tunes_a_kafka_consumer_has_no_effect(name: str) -> None:
    assert parse({**BASE, name: "1"}, streaming=False) == parse(BASE, streaming=False)


@pytest.mark.parametrize(
    ("changes", "streaming", "says"),
    [
        ({"subscribee": "a"}, False, "option subscribee is not known; did you mean subscribe?"),
        ({"wibble": "a"}, False, "option wibble is not known; docs/reference/spark.md"),
        ({"subscribePattern": "a"}, False, "subscribe and subscribePattern both say which topics"),
        ({"subscribe": "a,,b"}, False, "option subscribe: 'a,,b' has an empty name"),
        ({"subscribe": " "}, False, "option subscribe is empty"),
        ({"subscribe": None}, False, "set one of subscribe, subscribePattern or assign"),
        ({"admin.url": None}, False, "set admin.url"),
        ({"context": "a"}, False, "context and admin.url both say where the broker is"),
        ({"admin.url": "localhost:8080"}, False, "option admin.url: 'localhost:8080' is not an address"),
        (
            {"admin.url": "http://user:pw@localhost:8080"},
            False,
            "option admin.url has a user in it, which no broker",
        ),
        ({"startingOffsets": "latest"}, False, "option startingOffsets: a batch that begins at latest"),
        (
            {"startingOffsets": '{"flights":{"0":-1}}'},
            False,
            "option startingOffsets: a batch that begins at latest",
        ),
        ({"endingOffsets": "earliest"}, False, "option endingOffsets: earliest (-2)"),
        ({"endingOffsets": '{"flights":{"0":-2}}'}, False, "option endingOffsets: earliest (-2)"),
        ({"endingOffsets": "latest"}, True, "option endingOffsets: a stream has no end"),
        ({"endingTimestamp": "5"}, True, "option endingTimestamp: a stream has no end"),
        ({"startingOffsets": "{"}, False, "option startingOffsets: '{' is not JSON"),
        ({"startingOffsets": "[1]"}, False, "option startingOffsets: '[1]' is not JSON"),
        ({"startingOffsets": '{"flights":3}'}, False, "option startingOffsets: flights needs an object"),
        ({"startingOffsets": '{"flights":{"x":3}}'}, False, "'x' is not a partition of flights"),
        ({"startingOffsets": '{"flights":{"0":-3}}'}, False, "-3 for flights-0 is not an offset"),
        ({"startingOffsets": '{"flights":{"0":1.5}}'}, False, "1.5 for flights-0 is not an offset"),
        ({"startingOffsets": "{}"}, False, "names no partition"),
        (
            {"startingTimestamp": "yesterday"},
            False,
            "option startingTimestamp: 'yesterday' is not a time in milli",
        ),
        ({"startingOffsetsByTimestampStrategy": "never"}, False, "'never' is none of error, latest"),
        ({"minPartitions": "0"}, False, "option minPartitions: '0' is not a whole number of at least 1"),
        ({"maxRecordsPerPartition": "many"}, False, "option maxRecordsPerPartition: 'many' is not a whole"),
        (
            {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            True,
            "option minOffsetsPerTrigger: 6 is more",
        ),
        ({"maxTriggerDelay": "soon"}, True, "option maxTriggerDelay: 'soon' is not a time"),
        ({"failOnDataLoss": "perhaps"}, False, "option failOnDataLoss: 'perhaps' is none of true, false"),
        ({"kafka.isolation.level": "dirty"}, False, "option kafka.isolation.level: 'dirty' is none of"),
        (
            {"kafka.auto.offset.reset": "earliest"},
            False,
            "kafka.auto.offset.reset cannot be honoured: say where",
        ),
        ({"kafka.sasl.mechanism": "PLAIN"}, False, "option kafka.sasl.mechanism cannot be honoured"),
        ({"kafka.security.protocol": "SSL"}, False, "option kafka.security.protocol cannot be honoured"),
        ({"kafka.fetch.min.byte": "1"}, False, "did you mean kafka.fetch.min.bytes?"),
        ({"kafka.acks": "all"}, False, "option kafka.acks is one of writing"),
        ({"replicatorRate": "true"}, True, "option replicatorRate: a rate is of one replicator"),
        ({"predefinedSubscription": "s"}, False, "option predefinedSubscription: spark.read has no moment"),
        ({"read.mode": "fast"}, False, "option read.mode: 'fast' is none of auto, direct, broker"),
    ],
)
def test_what_is_refused_names_the_option(changes: dict[str, str | None], streaming: bool, says: str) -> None:
    options = {name: value for name, value in {**BASE, **changes}.items() if value is not None}
    with pytest.raises(OptionError) as raised:
        parse(options, streaming=streaming)
    assert says in str(raised.value)


@pytest.mark.parametrize("text", ["[]", '{"a":[]}', '{"a":[-1]}', '{"a":[true]}', '{"a":"0"}', "{}", "a"])
def test_an_assignment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="option assign"):
        parse({"admin.url": "http://h:1", "assign": text}, streaming=False)


def test_what_is_wrong_in_any_case_is_told_at_load() -> None:
    for streaming in (
        {"endingOffsets": "latest"},
        {"predefinedSubscription": "s"},
        {"startingOffsets": "latest"},
    ):
        assert "`key` binary" in schema_of({**BASE, **streaming})
    with pytest.raises(OptionError, match="option colour is not known"):
        schema_of({**BASE, "colour": "red"})
    with pytest.raises(OptionError, match="option endingOffsets: a stream has no end"):
        schema_of({**BASE, "endingOffsets": "latest", "predefinedSubscription": "s"})
    assert schema_of({"topic": "t", "kafka.acks": "all"})  # a sink's


def test_the_columns_follow_the_options() -> None:
    assert "`headers`" not in schema_of(BASE)
    assert "`headers`" in schema_of({**BASE, "INCLUDEHEADERS": "true"})
    assert "`__messageId`" in schema_of({**BASE, "includePulsarColumns": "true"})
    assert schema_of({**BASE, "descriptors": "true"}).endswith("`plan` binary")
