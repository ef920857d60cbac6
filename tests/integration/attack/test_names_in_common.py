"""What tenants have in common (names of groups and subscriptions, numbers of sessions) tells and changes nothing.

Here the victim's tenant is `acme`; the administrator of Kafka's own namespace, in which groups are at home, attacks.
"""

from collections.abc import Iterator
from typing import Any, Final

import confluent_kafka
import pulsar
import pytest
from confluent_kafka.admin import AdminClient

from magnetar.broker.security.model import group_resource
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.integration.attack.tenants import told
from tests.integration.matrix.book import BOSS, STRANGER, SUPER, Book
from tests.integration.matrix.ruled import Ruled, running, token

OWN: Final = "persistent://acme/house/hers"
PATH: Final = "/admin/v2/persistent/acme/house/hers"
HOME: Final = "/admin/v2/persistent/public/default/ours"
PATIENCE_S: Final = 30


@pytest.fixture(scope="module")
def ruled() -> Iterator[Ruled]:
    with running(Book(group_resource("g"))) as one:
        with one.http(STRANGER) as http:
            for path in ("/admin/v2/namespaces/acme/house", PATH, f"{PATH}/subscription/wages"):
                assert http.put(path, json={}).status_code == 204, path
        with one.http(BOSS) as http:
            for path in (HOME, f"{HOME}/subscription/payroll", f"{HOME}/subscription/pay-day"):
                assert http.put(path, json={}).status_code == 204, path
        yield one


def kafka_admin(ruled: Ruled, name: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{ruled.login_port}",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": name,
            "sasl.password": f"token:{token(name)}",
            "log_level": 0,
        }
    )


def listed(admin: AdminClient) -> set[str]:
    return {one.group_id for one in admin.list_consumer_groups().result(PATIENCE_S).valid}


def refused(future: Any) -> int:
    with pytest.raises(confluent_kafka.KafkaException) as failure:
        future.result(PATIENCE_S)
    code: int = failure.value.args[0].code()
    return code


def subscriptions(ruled: Ruled, name: str, path: str) -> set[str]:
    with ruled.http(name) as http:
        return set(http.get(f"{path}/subscriptions").json())


def test_subscriptions_of_another_tenant_are_no_groups(ruled: Ruled) -> None:
    boss, admin = kafka_admin(ruled, BOSS), kafka_admin(ruled, SUPER)
    assert {"payroll", "wages"} <= listed(admin)
    assert "payroll" in listed(boss)
    assert "wages" not in listed(boss)
    (there, missing) = (
        boss.describe_consumer_groups([group])[group].result(PATIENCE_S) for group in ("wages", "wagez")
    )
    assert (there.state, there.members) == (missing.state, missing.members)
    assert [refused(boss.delete_consumer_groups([group])[group]) for group in ("wages", "wagez")] == [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert "wages" in subscriptions(ruled, STRANGER, PATH)


def test_a_subscription_that_is_kept_for_others_outlives_a_reader_of_its_topic(ruled: Ruled) -> None:
    """The reader administers the groups of Kafka's namespace, and may read the topic."""
    grants = "/admin/v2/namespaces/acme/house/permissions"
    with ruled.http(STRANGER) as http:
        assert http.post(f"{PATH}/permissions/{BOSS}", json=["consume"]).status_code == 204
        assert http.post(f"{grants}/subscription/wages", json=["clerk"]).status_code == 204
    try:
        with ruled.kafka(BOSS) as client:
            partitions = [OffsetDeleteRequestPartition(0)]
            for group in ("wages", "wagez"):
                request = OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(OWN, partitions)])
                answer = client.ask("offset_delete", 0, request)
                rows = [row.error_code for topic in answer.topics for row in topic.partitions]
                assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND, group
                assert 0 not in rows, group
        assert "wages" in subscriptions(ruled, STRANGER, PATH)
    finally:
        with ruled.http(STRANGER) as http:
            assert http.delete(f"{PATH}/permissions/{BOSS}").status_code == 204


def test_a_consumer_of_another_tenant_keeps_no_group_from_its_administrator(ruled: Ruled) -> None:
    client = pulsar.Client(
        ruled.server.pulsar_url,
        authentication=pulsar.AuthenticationToken(token(STRANGER)),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        client.subscribe(OWN, "pay-day")
        boss = kafka_admin(ruled, BOSS)
        assert "pay-day" in listed(boss)
        assert boss.delete_consumer_groups(["pay-day"])["pay-day"].result(PATIENCE_S) is None
        assert subscriptions(ruled, BOSS, HOME) == {"payroll"}
        assert "pay-day" not in listed(boss)
        assert "pay-day" in subscriptions(ruled, STRANGER, PATH)
    finally:
        client.close()


def test_a_fetch_session_whose_number_is_guessed_is_none(ruled: Ruled) -> None:
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)

    def asked(number: int, epoch: int) -> FetchRequest:
        topics = [] if epoch > 0 else [FetchTopic(OWN, partitions=[partition])]
        return FetchRequest(max_wait_ms=0, session_id=number, session_epoch=epoch, topics=topics)

    with ruled.kafka(STRANGER) as victim, ruled.kafka(BOSS) as attacker:
        session = victim.ask("fetch", 12, asked(0, 0)).session_id
        assert session
        guessed = attacker.ask("fetch", 12, asked(session, 1))
        assert guessed.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert b"hers" not in told(guessed)
        attacker.ask("fetch", 12, FetchRequest(max_wait_ms=0, session_id=session, session_epoch=-1))
        assert victim.ask("fetch", 12, asked(session, 1)).error_code == 0
