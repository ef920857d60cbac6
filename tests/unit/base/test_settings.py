from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.limits import memory_bytes
from magnetar.base.listeners import Listener
from magnetar.base.server_key import Section
from magnetar.base.settings import ServerSettings, load_settings
from magnetar.base.settings_ignored import IGNORED_KEYS
from magnetar.base.settings_sources import NOT_IN_ENVIRONMENT, environment_name
from magnetar.base.settings_table import ALIASES, SERVER_KEYS


def of(*assignments: str) -> ServerSettings:
    return load_settings(assignments=assignments)


def problem(*assignments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        of(*assignments)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 800
    return message


def test_no_key_is_required() -> None:
    settings = load_settings()
    assert settings.network.listeners == (Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert settings.network.advertised == {}
    assert (settings.network.http_host, settings.network.http_port) == ("localhost", 8080)
    assert (settings.network.pulsar.host, settings.network.pulsar.advertised_host) == ("localhost", "")
    assert (settings.nodes.first_id, settings.nodes.count, settings.nodes.rack) == (1, 1, None)
    assert settings.data_dir == Path.cwd() / "magnetar-data"
    assert settings.storage.journal_sync_data is True
    assert settings.storage.entry_cache_bytes == min(memory_bytes() // 4, 1 << 30)
    assert settings.topics.partition_count_default == 1
    assert settings.topics.defaults == {}
    assert settings.groups.offsets_retention_minutes == 7 * 24 * 60
    assert settings.given == {}
    assert settings.notices == ()


def test_layers_come_one_over_the_other(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nnode.id=2\nkafka.port=2\nbroker.rack=file\ngroup.max.size=2\n")
    settings = load_settings(
        file=file,
        environment={
            "MAGNETAR_NODE_ID": "3",
            "MAGNETAR_KAFKA_PORT": "3",
            "MAGNETAR_BROKER_RACK": "environment",
            "HOME": "x",
        },
        assignments=["kafka.port=4", "broker.rack=set"],
        flags={"broker.rack": "flag"},
    )
    assert settings.groups.group_max_size == 2
    assert settings.topics.partition_count_default == 2
    assert settings.nodes.first_id == 3
    assert settings.network.listeners[0].port == 4
    assert settings.nodes.rack == "flag"
    assert settings.given["num.partitions"].origin == f"{file} line 1"
    assert settings.given["node.id"].origin == "MAGNETAR_NODE_ID"
    assert settings.given["kafka.port"].origin == "--set kafka.port"
    assert settings.given["broker.rack"].origin == "--broker-rack"


def test_a_kafka_nodes_properties_file_works_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# KRaft\n"
        "process.roles=broker,controller\n"
        "node.id=7\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://localhost:9092\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
        "num.network.threads=3\nnum.io.threads=8\n"
        "log.dirs=/tmp/kraft-combined-logs\nnum.partitions=1\n"
        "offsets.topic.replication.factor=1\n"
        "log.retention.hours=24\nlog.segment.bytes=1073741824\n"
        "listener.name.plaintext.sasl.enabled.mechanisms=PLAIN\nssl.keystore.password=hunter2\n"
    )
    settings = load_settings(file=file)
    assert settings.nodes.first_id == 7
    assert settings.network.listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert settings.network.advertised == {"PLAINTEXT": ("localhost", 9092)}
    assert settings.data_dir == Path("/tmp/kraft-combined-logs")
    assert settings.topics.defaults == {"log.retention.hours": "24", "log.segment.bytes": "1073741824"}
    assert (
        f"{file} line 10: num.network.threads has no effect: {IGNORED_KEYS['num.network.threads']}"
        in settings.notices
    )
    assert len(settings.notices) == 8
    assert "hunter2" not in repr(settings)


def test_a_kop_brokers_properties_work_as_they_are() -> None:
    settings = of(
        "messagingProtocols=kafka",
        "allowAutoTopicCreationType=partitioned",
        "kafkaListeners=internal://0.0.0.0:9092,external://0.0.0.0:19092",
        "kafkaProtocolMap=internal:PLAINTEXT,external:PLAINTEXT",
        "kafkaAdvertisedListeners=internal://host:9092,external://pub:19092",
        "kafkaTenant=ten",
        "kafkaNamespace=ns",
        "entryFormat=pulsar",
        "offsetsRetentionMinutes=4320",
        "groupInitialRebalanceDelayMs=0",
        "connectionMaxIdleMs=-1",
        "maxMessageSize=6291456",
        "brokerServicePort=16650",
        "advertisedAddress=pub",
        "keepAliveIntervalSeconds=10",
        "managedLedgerCacheSizeMB=64",
        "maxMessagePublishBufferSizeInMB=-1",
    )
    assert [one.name for one in settings.network.listeners] == ["INTERNAL", "EXTERNAL"]
    assert settings.network.advertised == {"INTERNAL": ("host", 9092), "EXTERNAL": ("pub", 19092)}
    assert (settings.topics.tenant, settings.topics.namespace) == ("ten", "ns")
    assert settings.groups.offsets_retention_minutes == 4320
    assert settings.groups.group_initial_rebalance_delay_ms == 0
    assert settings.network.idle_ms_max == -1
    assert settings.topics.defaults == {"message.max.bytes": "6291456"}
    pulsar = settings.network.pulsar
    assert (pulsar.port, pulsar.advertised_host) == (16650, "pub")
    assert (pulsar.message_bytes_max, pulsar.keep_alive_s) == (6 << 20, 10)
    assert settings.storage.entry_cache_bytes == 64 << 20
    assert settings.network.queued_request_bytes_max == -1
    assert any(
        "entryFormat has no effect: there is no format to choose" in notice for notice in settings.notices
    )


def test_an_unknown_key_is_one_sentence_with_the_closest_known_one() -> None:
    assert problem("num.partition=3") == (
        "--set num.partition: unknown key 'num.partition': did you mean num.partitions?"
    )
    assert "did you mean kafkaListeners?" in problem("kafkaListener=x")
    assert "see `magnetar config list`" in problem("zzz=1")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("num.partitions=0", "--set num.partitions: num.partitions must be from 1 to 10000, not '0'"),
        ("num.partitions=two", "must be a whole number, not 'two'"),
        ("auto.create.topics.enable=yes", "must be true or false, not 'yes'"),
        ("log.level=loud", "must be one of debug, info, warning, error, not 'loud'"),
        ("kafka.port=65536", "must be from 0 to 65535"),
        ("managedLedgerCacheSizeMB=0", "managedLedgerCacheSizeMB must be at least 1048576"),
        ("managedLedgerCacheSizeMB=x", "must be a whole number"),
        ("log.dirs=/a,/b", "must be one directory"),
        ("data.dir=", "must name a directory"),
        ("log.retention.ms=0", "must not be 0"),
        ("kafkaTenant=a/b", "kafkaTenant and kafkaNamespace: tenant 'a/b'"),
        ("default.replication.factor=2", "there are 1 nodes"),
        ("entryFormat=avro", "one of pulsar, kafka, mixed_kafka"),
        ("authorizer.class.name=org.x.Y", "can only be org.apache.kafka"),
        ("authenticationEnabled=true", "set authenticationProviders"),
        ("saslAllowedMechanisms=PLAIN", "set sasl.enabled.mechanisms"),
        ("listeners=SASL_PLAINTEXT://:9093", "nothing says how clients may log in"),
        ("group.min.session.timeout.ms=9999999", "greater than group.max.session.timeout.ms"),
        ("log.cleaner.max.compaction.lag.ms=1", None),
        ("nonsense", "--set 'nonsense' must be key=value"),
        ("=5", "must be key=value"),
    ],
)
def test_a_bad_value_is_one_sentence(assignment: str, message: str | None) -> None:
    if message is None:
        of(assignment)
        return
    assert message in problem(assignment)


def test_one_setting_under_two_names_must_have_one_value(tmp_path: Path) -> None:
    assert of("node.id=5", "broker.id=5").nodes.first_id == 5
    assert problem("node.id=5", "broker.id=6") == (
        "node.id and broker.id, which mean the same, have different values"
        " (--set node.id, --set broker.id): keep one of them"
    )
    file = tmp_path / "f"
    file.write_text("num.partitions=1\n\nnum.partitions=2\n")
    with pytest.raises(ConfigError, match=r"num.partitions have different values \(.*f line 1, .*f line 3\)"):
        load_settings(file=file)
    # A later layer is not a contradiction, whatever name it uses.
    file.write_text("broker.id=1\nlog.dirs=/a\n")
    settings = load_settings(file=file, assignments=["node.id=2"], flags={"data.dir": "/b"})
    assert settings.nodes.first_id == 2
    assert settings.data_dir == Path("/b")


def test_listeners_and_a_port_contradict_each_other() -> None:
    assert "both say where to listen" in problem("listeners=PLAINTEXT://:1", "kafka.port=2")


def test_a_later_layers_retention_unsays_an_earlier_one_in_another_unit(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("log.retention.ms=5\nlog.roll.ms=6\n")
    settings = load_settings(file=file, assignments=["log.retention.hours=1"])
    assert settings.topics.defaults == {"log.roll.ms": "6", "log.retention.hours": "1"}
    settings = of("log.retention.ms=5", "log.retention.hours=1")
    assert settings.topics.defaults == {"log.retention.ms": "5", "log.retention.hours": "1"}


def test_unknown_variables_in_the_environment_are_noted_and_never_fatal() -> None:
    settings = load_settings(
        environment={
            "MAGNETAR_NUM_PARTITION": "3",
            "MAGNETAR_PEERS": "x",
            "MAGNETAR_KAFKA_PORT": "tcp://10.0.0.1:9092",
            "MAGNETAR_KAFKATENANT": "x",
            "magnetar_node_id": "9",
        }
    )
    assert (
        "MAGNETAR_NUM_PARTITION in the environment is no setting: did you mean MAGNETAR_NUM_PARTITIONS?"
        in settings.notices
    )
    assert len(settings.notices) == 3
    assert settings.given == {}


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^MAGNETAR_NUM_PARTITIONS: num.partitions must be a whole number"):
        load_settings(environment={"MAGNETAR_NUM_PARTITIONS": "x"})


def test_names_in_the_environment_mean_one_key_each() -> None:
    meanings = defaultdict(set)
    for name in SERVER_KEYS:
        meanings[environment_name(name)].add(name)
    for alias, (key, _) in ALIASES.items():
        if alias not in NOT_IN_ENVIRONMENT:
            meanings[environment_name(alias)].add(key.name)
    for name in IGNORED_KEYS:
        meanings[environment_name(name)].add("ignored")
    assert [names for names in meanings.values() if len(names) > 1] == []
    assert environment_name("num.partitions") == "MAGNETAR_NUM_PARTITIONS"
    assert environment_name("kafkaTenant") == "MAGNETAR_KAFKA_TENANT"


def test_several_nodes_have_ports_and_advertised_ports_of_their_own() -> None:
    network = of("nodes=3", "kafka.port=9092", "advertised.listeners=PLAINTEXT://pub:19092").network
    assert [network.listeners_of(node)[0].port for node in range(3)] == [9092, 9093, 9094]
    assert [network.advertised_of(node) for node in range(2)] == [
        {"PLAINTEXT": ("pub", 19092)},
        {"PLAINTEXT": ("pub", 19093)},
    ]
    network = of("nodes=2", "kafka.port=0", "advertised.host=pub").network
    assert [network.listeners_of(node)[0].port for node in range(2)] == [0, 0]
    assert network.advertised_of(1) == {"PLAINTEXT": ("pub", 0)}


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (
            [
                "nodes=2",
                "listeners=A://:9092,B://:9093",
                "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
            ],
            "same",
        ),
        (["kafka.port=8080"], "PLAINTEXT://localhost:8080 and HTTP://localhost:8080 claim the same address"),
        (["nodes=2", "kafka.port=8079"], "same address"),
        (["nodes=2", "kafka.port=65535"], "past 65535"),
        (["nodes=0"], "from 1 to"),
    ],
)
def test_ports_that_cannot_be_are_refused(assignments: list[str], message: str) -> None:
    assert message in problem(*assignments)


@pytest.mark.parametrize(
    ("text", "bare"), [("0.0.0.0", ""), ("::", ""), ("[::1]", "::1"), ("localhost", "localhost")]
)
def test_host_is_that_of_the_default_listener_and_of_http(text: str, bare: str) -> None:
    network = of(f"host={text}").network
    assert network.listeners[0].host == network.http_host == bare


@pytest.mark.parametrize(
    ("assignments", "kafka", "others"),
    [
        (["listeners=PLAINTEXT://127.0.0.1:9092"], "127.0.0.1", "127.0.0.1"),
        (["listeners=PLAINTEXT://:9092"], "", ""),
        (
            ["listeners=CONTROLLER://:9093,PLAINTEXT://h:9092", "controller.listener.names=CONTROLLER"],
            "h",
            "h",
        ),
        (["listeners=PLAINTEXT://:9092", "host=10.0.0.5"], "10.0.0.5", "10.0.0.5"),
        (["listeners=PLAINTEXT://0.0.0.0:9092", "host=10.0.0.5"], "", "10.0.0.5"),
        (["listeners=PLAINTEXT://h:9092", "host="], "h", ""),
    ],
)
def test_what_says_where_one_listener_is_speaks_for_all(
    assignments: list[str], kafka: str, others: str
) -> None:
    """Kafka on loopback by `listeners` had left Pulsar and HTTP open to the network."""
    network = of(*assignments).network
    assert (network.listeners[0].host, network.pulsar.host, network.http_host) == (kafka, others, others)


def test_tables_lie_in_the_data_directory_and_where_else_the_settings_say() -> None:
    roots = of("data.dir=/d", "pipelines.table.roots=/srv/tables, s3://lake").pipelines.table_roots
    assert (roots.folders, roots.urls) == (("/d/tables", "/srv/tables"), ("s3://lake/",))
    assert "must be an absolute path" in problem("pipelines.table.roots=relative")


READERS: dict[str, tuple[str, Callable[[ServerSettings], object]]] = {
    "journal.sync.data": ("false", lambda s: s.storage.journal_sync_data),
    "journal.bytes": ("134217728", lambda s: s.storage.journal_bytes),
    "health.disk.free.min.bytes": ("5", lambda s: s.storage.disk_free_bytes_min),
    "entry.cache.bytes": ("2097152", lambda s: s.storage.entry_cache_bytes),
    "log.retention.check.interval.ms": ("5", lambda s: s.storage.retention_check_interval_ms),
    "log.cleaner.enable": ("false", lambda s: s.compaction.is_on),
    "log.cleaner.backoff.ms": ("5", lambda s: s.compaction.interval_ms),
    "log.cleaner.dedupe.buffer.size": ("5", lambda s: s.compaction.table_bytes),
    "log.cleaner.io.max.bytes.per.second": ("5.0", lambda s: s.compaction.bytes_per_second),
    "auto.create.topics.enable": ("false", lambda s: s.topics.auto_create),
    "delete.topic.enable": ("false", lambda s: s.topics.may_delete),
    "activeConsumerFailoverDelayTimeMillis": ("5", lambda s: s.subscriptions.failover_delay_ms),
    "brokerDeduplicationEnabled": ("true", lambda s: s.deduplication),
    "brokerMaxConnections": ("5", lambda s: s.network.pulsar.connections_max),
    "brokerMaxConnectionsPerIp": ("5", lambda s: s.network.pulsar.connections_per_address_max),
    "connections.max.idle.ms": ("5", lambda s: s.network.idle_ms_max),
    "socket.request.max.bytes": ("5", lambda s: s.network.request_bytes_max),
    "queued.max.request.bytes": ("5", lambda s: s.network.queued_request_bytes_max),
    "fetch.max.bytes": ("2048", lambda s: s.network.fetch_bytes_max),
    "max.incremental.fetch.session.cache.slots": ("5", lambda s: s.network.fetch_sessions_max),
    "http.port": ("5", lambda s: s.network.http_port),
    "group.initial.rebalance.delay.ms": ("5", lambda s: s.groups.group_initial_rebalance_delay_ms),
    "group.min.session.timeout.ms": ("5", lambda s: s.groups.group_min_session_timeout_ms),
    "group.max.session.timeout.ms": ("7000", lambda s: s.groups.group_max_session_timeout_ms),
    "offset.metadata.max.bytes": ("5", lambda s: s.groups.offset_metadata_max_bytes),
    "offsets.retention.check.interval.ms": ("5", lambda s: s.groups.offsets_retention_check_interval_ms),
    "producer.id.expiration.ms": ("5", lambda s: s.producer_id_expiration_ms),
    "transaction.max.timeout.ms": ("5", lambda s: s.transactions.transaction_max_timeout_ms),
    "transactional.id.expiration.ms": ("5", lambda s: s.transactions.transactional_id_expiration_ms),
    "max.concurrent.producer.ids": ("5", lambda s: s.producer_ids_max),
    "max.transactions.per.coordinator": ("5", lambda s: s.transactions.max_transactions_per_coordinator),
    "transactionCoordinatorEnabled": ("false", lambda s: s.transactions.transaction_coordinator_enabled),
    "maxActiveTransactionsPerCoordinator": (
        "5",
        lambda s: s.transactions.max_active_transactions_per_coordinator,
    ),
    "pulsar.transaction.max.timeout.ms": (
        "5",
        lambda s: s.transactions.pulsar_transaction_max_timeout_ms,
    ),
    "log.level": ("debug", lambda s: s.log.level),
    "log.format": ("json", lambda s: s.log.format),
}


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_setting_arrives_where_it_is_read(name: str) -> None:
    text, read = READERS[name]
    before, after = read(of()), read(of(f"{name}={text}"))
    assert before != after
    assert str(after).lower() == text


def test_every_default_is_valid_and_canonical() -> None:
    texts = {name: key.default for name, key in SERVER_KEYS.items() if key.default is not None}
    del texts["kafka.port"]
    settings = of(*(f"{name}={text}" for name, text in texts.items()))
    assert {name: setting.text for name, setting in settings.given.items()} == texts
    for key in SERVER_KEYS.values():
        assert key.doc.endswith(".")
        if key.default is None and key.section is not Section.TOPIC_DEFAULTS and key.name != "broker.rack":
            assert key.default_words, key.name


def test_no_name_stands_for_two_things() -> None:
    names = [*SERVER_KEYS, *ALIASES, *IGNORED_KEYS]
    assert len(names) == len(set(names))


def test_a_file_that_cannot_be_read_is_the_callers_to_explain(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_settings(file=tmp_path / "missing")


@pytest.mark.parametrize(
    ("assignments", "limit"),
    [
        ((), 5 << 20),
        (("message.max.bytes=1000",), 64 << 10),
        (("message.max.bytes=20000000",), 20_000_000),
        (("message.max.bytes=2147483647",), 128 << 20),
        (("message.max.bytes=20000000", "pulsar.message.max.bytes=65536"), 65536),
    ],
)
def test_pulsars_limit_of_messages_follows_kafkas_unless_it_is_set(
    assignments: tuple[str, ...], limit: int
) -> None:
    assert of(*assignments).network.pulsar.message_bytes_max == limit


def test_the_pulsar_listener_must_not_take_another_ones_port() -> None:
    assert "claim the same address" in problem("pulsar.port=8080")
    assert "claim the same address" in problem("pulsar.port=9092")


@pytest.mark.parametrize(
    ("url", "advertised"),
    [
        ("pulsar://outside.example:16650", ("outside.example", 16650)),
        ("pulsar://outside.example", ("outside.example", 6650)),
        ("pulsar://[2001:db8::1]:7", ("2001:db8::1", 7)),
    ],
)
def test_pulsar_clients_can_be_told_another_address(url: str, advertised: tuple[str, int]) -> None:
    pulsar = of(f"pulsar.advertised.url={url}", "advertised.host=inside").network.pulsar
    assert (pulsar.advertised_host, pulsar.advertised_port) == advertised


def test_the_listeners_of_the_environment_are_kafkas() -> None:
    found = load_settings(environment={"MAGNETAR_ADVERTISED_LISTENERS": "PLAINTEXT://kafka.example.com:9092"})
    assert found.network.advertised == {"PLAINTEXT": ("kafka.example.com", 9092)}


def test_pulsar_clients_may_have_several_listeners_or_one_address() -> None:
    two = "advertisedListeners=in:pulsar://a:1,out:pulsar://b:2"
    listeners = of(two, "internalListenerName=out", "bindAddresses=in:pulsar://:1").network.pulsar.listeners
    assert listeners.default == {"pulsar": ("b", 2)}
    assert [one.port for one in listeners.bindings] == [1]
    assert "keep one of them" in problem(two, "pulsar.advertised.url=pulsar://c:3")
    assert "claim the same address" in problem(two, "bindAddresses=in:pulsar://:9092")
    with_tls = "advertisedListeners=in:pulsar+ssl://a:1"
    assert "needs a certificate" in problem(with_tls, "bindAddresses=in:pulsar+ssl://:1")


@pytest.mark.parametrize(
    "url",
    ["", "outside.example:1", "http://x:1", "pulsar://", "pulsar://:1", "pulsar://x:0", "pulsar://x:99999"],
)
def test_what_is_no_pulsar_url_is_refused(url: str) -> None:
    assert "must be pulsar://host:port" in problem(f"pulsar.advertised.url={url}")
