"""Pipelines have the rights of who declared them, as these are now: with Spark, where rights are asked for."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation

from tests.spark.secured import CLUSTER, Secured, topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

READ, WRITE, ALTER, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER, AclOperation.CREATE


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("owners") / "data")
    try:
        for user in ("alice", "bob"):
            made.allow(user, CLUSTER, ALTER)  # which declaring takes
        yield made
        assert "Traceback" not in made.server.log
    finally:
        made.close()


def test_a_right_that_is_taken_stops_it_and_given_again_it_goes_on(secured: Secured) -> None:
    secured.topics("a-from", "a-to")
    secured.allow("alice", topic("a-from"), READ)
    secured.allow("alice", topic("a-to"), WRITE)
    secured.write("a-from", "1", "2", "3")
    secured.copy("alice", "a", "a-from", "a-to")
    assert secured.as_admin.get("a").owner == "User:alice"
    secured.until(lambda: secured.values("a-to") == ["1", "2", "3"])

    secured.take("alice", topic("a-from"), READ)
    secured.write("a-from", "4")
    reason = secured.until_failed("a")
    assert "User:alice is not authorized to" in reason
    assert "topic persistent://public/default/a-from" in reason
    assert "\n" not in reason
    secured.allow("alice", topic("a-from"), READ)
    secured.until(lambda: secured.values("a-to") == ["1", "2", "3", "4"])

    secured.take("alice", topic("a-to"), WRITE)
    secured.write("a-from", "5")
    reason = secured.until_failed("a")
    assert reason.startswith("User:alice, who has declared it, has no right to that: ")
    assert "a-to" in reason
    secured.allow("alice", topic("a-to"), WRITE)
    secured.until(lambda: secured.values("a-to") == ["1", "2", "3", "4", "5"])
    assert secured.as_admin.get("a").state == "RUNNING"


def test_what_its_owner_may_not_read_a_pipeline_reads_in_no_way(secured: Secured) -> None:
    """Also beside another owner's pipeline on the same topic, in the same Python workers."""
    secured.topics("b-closed", "b-out", "b-other")
    secured.write("b-closed", "secret")
    secured.allow("bob", topic("b-out"), WRITE, CREATE)
    secured.copy("admin", "b-admin", "b-closed", "b-other")
    ways = {
        "b-name": {"subscribe": "b-closed"},
        "b-full": {"subscribe": "persistent://public/default/b-closed"},
        "b-assign": {"assign": '{"b-closed":[0]}'},
        "b-time": {"subscribe": "b-closed", "startingTimestamp": "1"},
        "b-broker": {"subscribe": "b-closed", "read.mode": "broker"},
        "b-direct": {"subscribe": "b-closed", "read.mode": "direct"},
        "b-elsewhere": {"subscribe": "b-closed", "admin.url": secured.url},
        "b-group": {"subscribe": "b-closed", "kafka.bootstrap.servers": "localhost:9092"},
    }
    client = secured.as_user("bob")
    for name, source in ways.items():
        config = {"source": source, "sql": "select value from source", "sink": {"topic": "b-out"}}
        client.create(name, "query", config)
    client.create("b-pattern", "query", {
        "source": {"subscribePattern": "b-cl.*"}, "sql": "select value from source", "sink": {"topic": "b-out"}
    })  # fmt: skip
    client.create("b-table", "table", {"topics": "b-closed", "path": "b", "format": "parquet"})
    secured.until(lambda: secured.values("b-other") == ["secret"])
    for name in (*ways, "b-table"):
        reason = secured.until_failed(name)
        assert "secret" not in reason
        if name not in ("b-elsewhere", "b-group"):  # no login is shown there
            assert "User:bob is not authorized to" in reason, (name, reason)
    secured.until(lambda: secured.as_admin.get("b-pattern").state in ("RUNNING", "FAILED"))
    assert secured.values("b-out") == []
    assert not list((secured.server.data_dir / "tables" / "b").rglob("*.parquet"))
    secured.until(lambda: secured.as_admin.get("b-admin").state == "RUNNING")
    for name in (*ways, "b-pattern", "b-table", "b-admin"):
        secured.as_admin.delete(name, force=True)


def test_a_pipelines_name_gives_its_next_owner_nothing_of_the_last(secured: Secured) -> None:
    """Connections to the server are kept in Python workers, and are logged in."""
    secured.topics("c-from", "c-to")
    secured.write("c-from", "1")
    secured.copy("admin", "c", "c-from", "c-to")
    secured.until(lambda: secured.values("c-to") == ["1"])
    secured.as_admin.delete("c")
    secured.until(lambda: "c" not in [row.name for row in secured.as_admin.all()])
    secured.copy("bob", "c", "c-from", "c-to")
    assert secured.as_admin.get("c").owner == "User:bob"
    assert "User:bob is not authorized to" in secured.until_failed("c")
    secured.allow("bob", topic("c-from"), READ)
    secured.until(lambda: secured.as_admin.get("c").reason.startswith("User:bob, who has declared it"))
    assert secured.values("c-to") == ["1"]


def test_tables_and_their_dead_letters_are_their_owners(secured: Secured) -> None:
    secured.topics("d-from", "d-from-d-DLQ")
    secured.allow("bob", topic("d-from"), READ)
    secured.allow("bob", topic("d-from-d-DLQ"), WRITE)
    secured.write("d-from", "1", "2")
    secured.as_user("bob").create(
        "d", "table", {"topics": "d-from", "path": "d", "format": "parquet", "trigger": "1 second"}
    )
    secured.until(lambda: secured.as_admin.get("d").status.get("rows", 0) >= 2)
    assert list((secured.server.data_dir / "tables" / "d").rglob("*.parquet"))
