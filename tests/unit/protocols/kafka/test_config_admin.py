"""The configuration APIs as a client sees them; codes and most texts as Apache Kafka 4.3.1 gives them."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.topic import Topic
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import alter_configs, incremental_alter_configs
from magnetar.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from magnetar.wire.kafka.messages.list_config_resources import ListConfigResourcesRequest

Run = Callable[..., None]

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


async def made(client: Any, name: str, **configs: str) -> Topic:
    topics = client.broker.topics
    new = NewTopic(
        client.broker.kafka_topics.name(name),
        1,
        -1,
        None,
        {k.replace("_", "."): v for k, v in configs.items()},
    )
    await topics.create([topics.plan(new)])
    found: Topic = topics.get(new.name)
    return found


async def describe(
    client: Any, kind: int, name: str, keys: list[str] | None = None, *, version: int = 4, **flags: bool
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)], **flags)
    row: DescribeConfigsResult = (await client.ask("describe_configs", version, request)).results[0]
    return row


async def change(
    client: Any, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[str, str | None]:
    m = incremental_alter_configs
    resource = m.AlterConfigsResource(kind, name, [m.AlterableConfig(*one) for one in changes])
    request = m.IncrementalAlterConfigsRequest([resource], validate_only)
    row = (await client.ask("incremental_alter_configs", 1, request)).responses[0]
    return ErrorCode(row.error_code).name, row.error_message


async def replace(
    client: Any,
    kind: int,
    name: str,
    *configs: tuple[str, str | None],
    version: int = 2,
    validate_only: bool = False,
) -> str:
    m = alter_configs
    resource = m.AlterConfigsResource(kind, name, [m.AlterableConfig(*one) for one in configs])
    request = m.AlterConfigsRequest([resource], validate_only)
    return ErrorCode((await client.ask("alter_configs", version, request)).responses[0].error_code).name


@pytest.mark.parametrize("version", range(1, 5))
def test_topic_shows_its_own_settings_over_the_defaults(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t", retention_ms="1000")
        flags = {"include_synonyms": True, "include_documentation": version >= 3}
        row = await describe(client, TOPIC, "t", ["retention.ms", "nope"], version=version, **flags)
        assert row.error_code == ErrorCode.NONE
        [config] = row.configs
        assert (config.name, config.value, config.config_source, config.read_only) == (
            "retention.ms", "1000", 1, False,
        )  # fmt: skip
        assert [(one.name, one.value, one.source) for one in config.synonyms] == [
            ("retention.ms", "1000", 1),
            ("log.retention.hours", "100", 4),
            ("log.retention.hours", "168", 5),
        ]
        assert bool(config.documentation) == (version >= 3)

    with_broker(scenario, topic_defaults={"log.retention.hours": "100"})


def test_no_keys_means_all_keys(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t")
        all_of_them = await describe(client, TOPIC, "t", None)
        assert len(all_of_them.configs) == 34  # as many as a 4.3 broker has, and one of 4.4's
        assert (await describe(client, TOPIC, "t", [])).configs == all_of_them.configs
        assert all(config.synonyms == [] and config.documentation is None for config in all_of_them.configs)

    with_broker(scenario)


def test_what_does_not_exist_has_no_settings(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        for kind, name, code in (
            (TOPIC, "nope", "UNKNOWN_TOPIC_OR_PARTITION"),
            (TOPIC, "bad name", "INVALID_TOPIC_EXCEPTION"),
            (BROKER, "9", "INVALID_REQUEST"),
            (BROKER, "x", "INVALID_REQUEST"),
            (BROKER, "9" * 5000, "INVALID_REQUEST"),
            (LOGGER, "", "INVALID_REQUEST"),
            (METRICS, "", "INVALID_REQUEST"),
            (GROUP, "", "INVALID_REQUEST"),
            (99, "t", "INVALID_REQUEST"),
        ):
            row = await describe(client, kind, name)
            assert ErrorCode(row.error_code).name == code, (kind, name)
            assert row.error_message
            assert row.configs == []
        for kind, name in ((BROKER, ""), (METRICS, "m")):
            row = await describe(client, kind, name)
            assert (row.error_code, row.configs) == (ErrorCode.NONE, [])

    with_broker(scenario)


def test_every_node_shows_what_the_server_was_started_with(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        row = await describe(
            client, BROKER, "2", ["num.partitions", "node.id", "log.dirs"], include_synonyms=True
        )
        shown = {config.name: config for config in row.configs}
        assert (shown["num.partitions"].value, shown["num.partitions"].config_source) == ("7", 4)
        assert shown["node.id"].value == "2"
        assert all(config.read_only for config in row.configs)
        assert [(one.value, one.source) for one in shown["num.partitions"].synonyms] == [("7", 4), ("1", 5)]

    with_broker(scenario, node_count=2, given={"num.partitions": "7"})


def test_changed_setting_holds_at_once_and_after_a_restart(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t")
        log = topic.partition(0).log
        assert await change(client, TOPIC, "t", ("segment.bytes", SET, "1048576")) == ("NONE", None)
        assert log.limits.size_bytes_max == 1 << 20
        assert await change(client, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == ("NONE", None)
        assert topic.config.compact
        assert topic.config.delete
        assert await change(client, TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact")) == ("NONE", None)
        assert await change(client, TOPIC, "t", ("segment.bytes", DELETE, None)) == ("NONE", None)
        assert log.limits.size_bytes_max == 1 << 30
        stored = await client.metadata.get("/topics/public/default/persistent/t")
        assert b'"configs": {"cleanup.policy": "delete"}' in stored.value

    with_broker(scenario)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "x")], "INVALID_CONFIG"),
        ([("nope", SET, "1")], "INVALID_CONFIG"),
        ([("nope", DELETE, None)], "NONE"),
        ([("retention.ms", APPEND, "1")], "INVALID_CONFIG"),
        ([("retention.ms", SET, None)], "INVALID_REQUEST"),
        ([("retention.ms", 9, "1")], "INVALID_REQUEST"),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], "INVALID_REQUEST"),
        ([("retention.ms", SET, "1"), ("segment.ms", SET, "0")], "INVALID_CONFIG"),
        ([], "NONE"),
    ],
)
def test_a_bad_change_changes_nothing(
    with_broker: Run, changes: list[tuple[str, int, str | None]], code: str
) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t", retention_ms="5")
        before = client.metadata.commit_count
        assert (await change(client, TOPIC, "t", *changes))[0] == code
        assert topic.overrides == {"retention.ms": "5"}
        assert client.metadata.commit_count == before

    with_broker(scenario)


def test_validate_only_changes_nothing(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t")
        assert await change(client, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True) == (
            "NONE",
            None,
        )
        assert await replace(client, TOPIC, "t", ("retention.ms", "1"), validate_only=True) == "NONE"
        assert topic.overrides == {}

    with_broker(scenario)


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_of_them(with_broker: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t", retention_ms="5", segment_ms="6")
        assert await replace(client, TOPIC, "t", ("retention.ms", "7"), version=version) == "NONE"
        assert topic.overrides == {"retention.ms": "7"}
        assert await replace(client, TOPIC, "t", ("retention.ms", None), version=version) == "INVALID_REQUEST"
        assert await replace(client, TOPIC, "t", ("nope", "1"), version=version) == "INVALID_CONFIG"
        twice = (("retention.ms", "1"), ("retention.ms", "2"))
        assert await replace(client, TOPIC, "t", *twice, version=version) == "INVALID_REQUEST"
        assert topic.overrides == {"retention.ms": "7"}
        assert await replace(client, TOPIC, "", version=version) == "INVALID_REQUEST"
        assert await replace(client, TOPIC, "nope", version=version) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await replace(client, TOPIC, "t", version=version) == "NONE"
        assert topic.overrides == {}

    with_broker(scenario)


def test_a_resource_named_twice_is_refused_twice_and_the_others_are_served(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t")
        other = await made(client, "u")
        m = incremental_alter_configs
        resources = [
            m.AlterConfigsResource(TOPIC, name, [m.AlterableConfig(key, SET, "9")])
            for name, key in (("t", "retention.ms"), ("t", "segment.ms"), ("u", "segment.ms"))
        ]
        request = m.IncrementalAlterConfigsRequest(resources)
        rows = (await client.ask("incremental_alter_configs", 1, request)).responses
        assert [ErrorCode(row.error_code).name for row in rows] == [
            "INVALID_REQUEST",
            "INVALID_REQUEST",
            "NONE",
        ]
        assert other.overrides == {"segment.ms": "9"}

    with_broker(scenario)


def test_changes_of_one_topic_at_the_same_time_all_hold(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t")
        keys = ("retention.ms", "segment.ms", "retention.bytes", "segment.bytes")
        await asyncio.gather(*(change(client, TOPIC, "t", (key, SET, "10000000")) for key in keys))
        assert topic.overrides == dict.fromkeys(keys, "10000000")

    with_broker(scenario)


def test_failed_write_leaves_the_old_settings_in_force(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await made(client, "t", retention_ms="5")
        client.metadata.fail_next = 1
        assert (await change(client, TOPIC, "t", ("retention.ms", SET, "6")))[0] == "KAFKA_STORAGE_ERROR"
        assert topic.config.retention_ms == 5
        assert (await change(client, TOPIC, "t", ("retention.ms", SET, "6")))[0] == "NONE"

    with_broker(scenario)


def test_brokers_are_set_at_start(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        code, message = await change(client, BROKER, "1", ("message.max.bytes", SET, "1"))
        assert code == "INVALID_REQUEST"
        assert message is not None
        assert message.startswith("Cannot update these configs dynamically: [message.max.bytes]")
        assert (await change(client, BROKER, "", ("message.max.bytes", SET, "1")))[0] == "INVALID_REQUEST"
        assert (await change(client, BROKER, "9", ("message.max.bytes", DELETE, None)))[
            0
        ] == "INVALID_REQUEST"
        assert (await change(client, BROKER, "1", ("message.max.bytes", DELETE, None)))[0] == "NONE"
        assert await replace(client, BROKER, "1", ("message.max.bytes", "1")) == "INVALID_REQUEST"
        assert await replace(client, BROKER, "1") == "NONE"
        assert (await change(client, METRICS, "m", ("interval.ms", SET, "1")))[0] == "INVALID_CONFIG"
        assert (await change(client, 99, "m", ("interval.ms", SET, "1")))[0] == "INVALID_REQUEST"

    with_broker(scenario)


MAX, OWN = "max.connections", "listener.name.plaintext.max.connections"


def test_limits_on_connections_are_changed_while_a_broker_runs(with_broker: Run) -> None:
    async def shown(client: Any, node: str) -> dict[str, Any]:
        row = await describe(client, BROKER, node, [MAX, OWN, "num.partitions"], include_synonyms=True)
        return {
            one.name: (
                one.value,
                one.config_source,
                one.read_only,
                [(synonym.value, synonym.source) for synonym in one.synonyms],
            )
            for one in row.configs
        }

    async def scenario(client: Any) -> None:
        admission = client.broker.admission
        assert (await shown(client, "1"))[MAX] == ("9", 4, False, [("9", 4), ("2147483647", 5)])
        assert (await change(client, BROKER, "", (MAX, SET, "7"), (OWN, SET, "3")))[0] == "NONE"
        assert (await change(client, BROKER, "1", (MAX, SET, "8")))[0] == "NONE"
        assert await shown(client, "") == {
            MAX: ("7", 3, False, [("7", 3), ("2147483647", 5)]),
            OWN: ("3", 3, False, [("3", 3)]),
        }
        found = await shown(client, "1")
        assert found[MAX] == ("8", 2, False, [("8", 2), ("7", 3), ("9", 4), ("2147483647", 5)])
        assert found[OWN][:2] == ("3", 3)
        assert found["num.partitions"][2], "others are read-only"
        assert admission._rules.all_listeners.connections_max == 8

        # Nothing of a request that is refused, or only checked, holds.
        bad = [(MAX, SET, "5"), ("num.partitions", SET, "5")]
        assert (await change(client, BROKER, "1", *bad))[0] == "INVALID_REQUEST"
        assert (await change(client, BROKER, "1", (MAX, SET, "-1")))[0] == "INVALID_CONFIG"
        assert (await change(client, BROKER, "1", (MAX, APPEND, "1")))[0] == "INVALID_REQUEST"
        assert (await change(client, BROKER, "1", (MAX, SET, "0"), validate_only=True))[0] == "INVALID_CONFIG"
        assert (await change(client, BROKER, "1", (MAX, SET, "5"), validate_only=True))[0] == "NONE"
        assert await replace(client, BROKER, "1", (MAX, None)) == "INVALID_REQUEST"
        client.metadata.fail_next = 1
        assert (await change(client, BROKER, "1", (MAX, SET, "5")))[0] == "KAFKA_STORAGE_ERROR"
        assert (await shown(client, "1")) == found

        assert await replace(client, BROKER, "") == "NONE"
        assert await shown(client, "") == {}
        assert (await change(client, BROKER, "1", (MAX, DELETE, None)))[0] == "NONE"
        assert (await shown(client, "1"))[MAX][:2] == ("9", 4)
        assert admission._rules.all_listeners.connections_max == 9

    with_broker(scenario, given={MAX: "9"})


def test_nodes_of_one_process_have_one_limit(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        assert (await change(client, BROKER, "2", (MAX, SET, "7")))[0] == "INVALID_REQUEST"
        assert (await change(client, BROKER, "2", (MAX, DELETE, None)))[0] == "NONE"
        assert (await change(client, BROKER, "", (MAX, SET, "7")))[0] == "NONE"
        for node in ("1", "2"):
            row = await describe(client, BROKER, node, [MAX])
            assert (row.configs[0].value, row.configs[0].config_source) == ("7", 3)

    with_broker(scenario, node_count=2)


def test_changes_of_a_broker_at_the_same_time_all_hold(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Any) -> None:
        commit = client.metadata.commit

        async def commit_later(*arguments: Any) -> None:
            await asyncio.sleep(0)
            await commit(*arguments)

        monkeypatch.setattr(client.metadata, "commit", commit_later)
        keys = (MAX, OWN, "max.connections.per.ip", "max.connection.creation.rate")
        await asyncio.gather(*(change(client, BROKER, "", (key, SET, "1000")) for key in keys))
        assert client.broker.broker_configs.of_all() == dict.fromkeys(keys, "1000")

    with_broker(scenario)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    one = logging.getLogger("magnetar.protocols.kafka.session")
    level = one.level
    yield one
    one.setLevel(level)


def test_log_levels_are_shown_and_set(with_broker: Run, logger: logging.Logger) -> None:
    async def scenario(client: Any) -> None:
        name = logger.name
        assert (await change(client, LOGGER, "1", (name, SET, "DEBUG")))[0] == "NONE"
        assert logger.getEffectiveLevel() == logging.DEBUG
        [shown] = (await describe(client, LOGGER, "1", [name])).configs
        assert (shown.value, shown.config_source) == ("DEBUG", 6)
        assert (await change(client, LOGGER, "1", (name, SET, "ERROR"), validate_only=True))[0] == "NONE"
        assert logger.getEffectiveLevel() == logging.DEBUG
        for bad, code in (
            ((name, SET, "LOUD"), "INVALID_CONFIG"),
            (("asyncio", SET, "INFO"), "INVALID_CONFIG"),
            (("root", DELETE, None), "INVALID_REQUEST"),
            ((name, APPEND, "INFO"), "INVALID_REQUEST"),
        ):
            assert (await change(client, LOGGER, "1", bad))[0] == code
        assert (await change(client, LOGGER, "1", (name, DELETE, None)))[0] == "NONE"
        assert logger.level == logging.NOTSET

    with_broker(scenario)


def test_configurations_are_listed_by_kind(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await made(client, "t")

        async def listed(version: int, *kinds: int) -> list[tuple[str, int]]:
            response = await client.ask(
                "list_config_resources", version, ListConfigResourcesRequest(list(kinds))
            )
            assert response.error_code == ErrorCode.NONE
            return [(one.resource_name, one.resource_type) for one in response.config_resources]

        assert await listed(0) == []  # client metrics subscriptions
        assert (await change(client, METRICS, "m", ("interval.ms", SET, "1000")))[0] == "NONE"
        assert await listed(0) == await listed(1, METRICS) == [("m", METRICS)]
        assert (await change(client, METRICS, "m", ("interval.ms", DELETE, None)))[0] == "NONE"
        assert await listed(1) == [("t", TOPIC), ("1", BROKER), ("2", BROKER), ("1", LOGGER), ("2", LOGGER)]
        assert await listed(1, BROKER, BROKER) == [("1", BROKER), ("2", BROKER)]
        unknown = await client.ask("list_config_resources", 1, ListConfigResourcesRequest([99]))
        assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION

    with_broker(scenario, node_count=2)
