"""Settings of groups, from a request's bytes to a response's bytes, and what follows from them."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.groups import configs
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.list_config_resources import ListConfigResourcesRequest
from tests.unit.protocols.kafka.test_config_admin import DELETE, GROUP, SET, change, describe, replace

Run = Callable[..., None]
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
OF_GROUP, DEFAULT = 8, 5
SHARING = {
    "assignment.interval.ms": "1000",
    "auto.offset.reset": "latest",
    "delivery.count.limit": "5",
    "heartbeat.interval.ms": "5000",
    "isolation.level": "read_uncommitted",
    "partition.max.record.locks": "2000",
    "record.lock.duration.ms": "30000",
    "renew.acknowledge.enable": "true",
    "session.timeout.ms": "45000",
}

STREAMS = {
    "assignment.interval.ms": "1000",
    "heartbeat.interval.ms": "5000",
    "initial.rebalance.delay.ms": "3000",
    "num.standby.replicas": "0",
    "session.timeout.ms": "45000",
}


def test_a_group_shows_its_own_settings_over_the_servers(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        assert (await change(client, GROUP, "g", (SESSION, SET, " 50000 ")))[0] == "NONE"
        row = await describe(client, GROUP, "g", include_synonyms=True)
        shown = {one.name: (one.value, one.config_source, one.read_only) for one in row.configs}
        assert shown == {
            ASSIGNMENT: ("1000", DEFAULT, False),
            HEARTBEAT: ("5000", DEFAULT, False),
            SESSION: ("50000", OF_GROUP, False),
            "errors.deadletterqueue.topic.name": ("", DEFAULT, False),
            "errors.deadletterqueue.copy.record.enable": ("false", DEFAULT, False),
        } | {
            f"{kind}.{name}": (value, DEFAULT, False)
            for kind, values in (("share", SHARING), ("streams", STREAMS))
            for name, value in values.items()
        }
        synonyms = {one.name: [(each.name, each.value) for each in one.synonyms] for one in row.configs}
        assert synonyms[SESSION] == [(SESSION, "50000"), (f"group.{SESSION}", "45000")]
        (one,) = (await describe(client, GROUP, "g", [SESSION, "nope"])).configs
        assert one.value == "50000"
        assert {one.config_source for one in (await describe(client, GROUP, "other")).configs} == {DEFAULT}
        assert (await change(client, GROUP, "g", (SESSION, DELETE, None)))[0] == "NONE"
        assert {one.config_source for one in (await describe(client, GROUP, "g")).configs} == {DEFAULT}

    with_broker(scenario)


@pytest.mark.parametrize(
    ("name", "operation", "value", "code"),
    [
        (SESSION, SET, "1", "INVALID_CONFIG"),
        (SESSION, SET, "60001", "INVALID_CONFIG"),
        (SESSION, SET, "x", "INVALID_CONFIG"),
        (SESSION, 2, "50000", "INVALID_REQUEST"),
        (HEARTBEAT, SET, "15001", "INVALID_CONFIG"),
        ("share.record.lock.duration.ms", SET, "14999", "INVALID_CONFIG"),
        ("share.delivery.count.limit", SET, "11", "INVALID_CONFIG"),
        ("share.partition.max.record.locks", SET, "99", "INVALID_CONFIG"),
        ("share.auto.offset.reset", SET, "by_duration:1H", "INVALID_CONFIG"),
        ("share.auto.offset.reset", SET, "by_duration:PT", "INVALID_CONFIG"),
        ("share.isolation.level", SET, "serializable", "INVALID_CONFIG"),
        ("share.renew.acknowledge.enable", SET, "yes", "INVALID_CONFIG"),
        ("streams.num.standby.replicas", SET, "3", "INVALID_CONFIG"),
        ("streams.session.timeout.ms", SET, "1000", "INVALID_CONFIG"),
        ("streams.initial.rebalance.delay.ms", SET, "-1", "INVALID_CONFIG"),
        ("nope", SET, "1", "INVALID_CONFIG"),
        ("nope", DELETE, None, "INVALID_CONFIG"),
    ],
)
def test_what_does_not_hold_is_refused(
    with_broker: Run, name: str, operation: int, value: str | None, code: str
) -> None:
    async def scenario(client: Any) -> None:
        answer, message = (
            await change(client, GROUP, "g", (HEARTBEAT, SET, "6000"), (name, operation, value))
            if name != HEARTBEAT
            else await change(client, GROUP, "g", (name, operation, value))
        )
        assert (answer, bool(message)) == (code, True)
        assert {one.config_source for one in (await describe(client, GROUP, "g")).configs} == {DEFAULT}

    with_broker(scenario)


def test_groups_with_settings_are_listed_and_may_be_nameless_or_too_many_no_more_than_others(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "GROUPS_MAX", 2)

    async def scenario(client: Any) -> None:
        assert (await change(client, GROUP, "", (SESSION, SET, "50000")))[0] == "INVALID_REQUEST"
        for name, code in (("a", "NONE"), ("b", "NONE"), ("c", "INVALID_REQUEST"), ("b", "NONE")):
            assert (await change(client, GROUP, name, (SESSION, SET, "50000")))[0] == code
        assert (await change(client, GROUP, "d", (SESSION, SET, "50000"), validate_only=True))[0] == "NONE"
        answer = await client.ask("list_config_resources", 1, ListConfigResourcesRequest([GROUP]))
        assert sorted(one.resource_name for one in answer.config_resources) == ["a", "b"]
        assert await replace(client, GROUP, "a", (SESSION, "50000")) == "INVALID_REQUEST"

    with_broker(scenario)


def test_members_get_the_interval_of_their_group_with_their_next_heartbeat(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        async def beat(epoch: int) -> Any:
            joins = epoch == 0
            request = ConsumerGroupHeartbeatRequest(
                "g",
                "m",
                epoch,
                rebalance_timeout_ms=1000 if joins else -1,
                subscribed_topic_names=[] if joins else None,
                topic_partitions=[] if joins else None,
            )
            answer = await client.ask("consumer_group_heartbeat", 1, request)
            assert answer.error_code == ErrorCode.NONE
            return answer

        first = await beat(0)
        assert first.heartbeat_interval_ms == 5000
        await change(client, GROUP, "g", (HEARTBEAT, SET, "7000"))
        assert (await beat(first.member_epoch)).heartbeat_interval_ms == 7000

    with_broker(scenario)


@pytest.mark.parametrize(
    ("reset", "begins_at_start", "rollback_s"),
    [
        ("latest", False, 0),
        ("earliest", True, 0),
        ("by_duration:PT1H30M", False, 5400),
        ("by_duration:P2DT3.5S", False, 172_803),
        ("by_duration:pt0s", False, 1),
    ],
)
def test_where_a_share_group_begins_is_its_own_setting(
    with_broker: Run, reset: str, begins_at_start: bool, rollback_s: int
) -> None:
    async def scenario(client: Any) -> None:
        assert (await change(client, GROUP, "g", ("share.auto.offset.reset", SET, reset)))[0] == "NONE"
        rules = client.broker.groups.configs.sharing("g")
        assert (rules.begins_at_start, rules.rollback_s) == (begins_at_start, rollback_s)

    with_broker(scenario)
