"""The audit log: what is counted, what is bounded, and what a change leaves behind."""

import asyncio

import pytest

from magnetar.broker.errors import TopicExists
from magnetar.broker.security import audit_repeats
from magnetar.broker.security.audit import BUG, Audit
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.audit_repeats import BURST_LINES, FEW_LINES, KINDS_MAX, LINES_PER_S, SOURCES_MAX
from magnetar.broker.security.authorizer import AccessControl, AllowAll
from magnetar.broker.security.errors import ClusterNotAuthorized, TopicNotAuthorized
from magnetar.broker.security.model import (
    ANONYMOUS,
    CLUSTER,
    Caller,
    Operation,
    Origin,
    Principal,
    Resource,
    ResourceType,
    subscription_resource,
    topic_resource,
)
from magnetar.testing.audit import MemoryAudit
from magnetar.testing.clock import FakeClock

ALICE = Caller(Principal("User", "alice"), "10.0.0.9", Origin("kafka", "SASL_SSL", "app-1"))
TOPIC = topic_resource("persistent://public/default/t")


class DenyAll:
    tells_hosts_apart = False

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return False

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        return False


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log(clock: FakeClock) -> MemoryAudit:
    return MemoryAudit(clock)


def written(log: MemoryAudit) -> int:
    """Lines that stand there now, whatever has been counted besides."""
    return len(log.raw)


# --- refusals --------------------------------------------------------------------------------------------------------


def test_a_refusal_says_who_from_where_and_what(log: MemoryAudit) -> None:
    access = AccessControl(DenyAll(), log.audit)
    with pytest.raises(TopicNotAuthorized):
        access.require(ALICE, Operation.WRITE, TOPIC)
    with pytest.raises(TopicNotAuthorized):
        access.require_unnamed(ALICE, Operation.READ, TOPIC)
    first, second = log.take()
    assert first == {
        "time": "2023-11-14T22:13:20.000Z",
        "event": "refusal",
        "result": "refused",
        "principal": "User:alice",
        "host": "10.0.0.9",
        "door": "kafka",
        "listener": "SASL_SSL",
        "client": "app-1",
        "operation": "WRITE",
        "resource_type": "topic",
        "resource": "persistent://public/default/t",
    }
    assert (second["operation"], second["resource"]) == ("READ", "persistent://public/default/t")


def test_what_is_only_left_out_of_a_list_is_no_refusal(log: MemoryAudit) -> None:
    access = AccessControl(DenyAll(), log.audit)
    assert not access.permits(ALICE, Operation.DESCRIBE, TOPIC)
    assert not access.permitted(ALICE, CLUSTER)
    assert not access.permits_any(ALICE, Operation.WRITE, ResourceType.TOPIC)
    assert not log.take()


def test_a_subscription_is_named_with_its_topic(log: MemoryAudit) -> None:
    log.audit.refused(ALICE, Operation.READ, subscription_resource(TOPIC.name, "s"))
    (line,) = log.take()
    assert (line["resource_type"], line["resource"], line["topic"]) == ("subscription", "s", TOPIC.name)


def test_refusals_of_one_kind_are_counted_and_written_ever_more_rarely(
    clock: FakeClock, log: MemoryAudit
) -> None:
    said = []
    for _ in range(1000):
        for _ in range(10):
            log.audit.refused(ALICE, Operation.WRITE, TOPIC)
        clock.advance(1)
        said.append(written(log))
    assert said[0] == 2  # the first one, and what was counted in its second
    assert said[-1] == 8, "behind 1, 4, 16, 64, 256, 300 and 300 seconds"
    assert sum(line.get("count", 1) for line in log.take()) == 10_000


def test_a_kind_that_was_quiet_is_written_at_once_again(clock: FakeClock, log: MemoryAudit) -> None:
    log.audit.refused(ALICE, Operation.WRITE, TOPIC)
    clock.advance(2)
    log.audit.refused(ALICE, Operation.WRITE, TOPIC)
    assert written(log) == 2
    assert not any("count" in line for line in log.take())


def test_what_a_client_calls_itself_makes_no_other_kind(log: MemoryAudit) -> None:
    for number in range(100):
        caller = Caller(ALICE.principal, ALICE.host, Origin("kafka", "SASL_SSL", f"client {number}"))
        log.audit.refused(caller, Operation.WRITE, TOPIC)
    assert written(log) == 1


def test_a_flood_of_many_kinds_is_bounded_and_says_how_many_it_dropped(
    clock: FakeClock, log: MemoryAudit
) -> None:
    for number in range(10_000):
        log.audit.refused(ALICE, Operation.WRITE, topic_resource(f"persistent://public/default/{number}"))
    assert written(log) == BURST_LINES // 2
    clock.advance(1)
    assert written(log) == BURST_LINES // 2 + 1
    for second in range(100):
        for number in range(100):
            log.audit.refused(ALICE, Operation.READ, topic_resource(f"{second} {number}"))
        clock.advance(1)
    assert written(log) <= BURST_LINES // 2 + 101 * (LINES_PER_S // 2 + 1)
    lines = log.take()
    dropped = sum(line["count"] for line in lines if line["event"] == "dropped")
    told = sum(line.get("count", 1) for line in lines if line["event"] == "refusal")
    assert dropped + told == 20_000
    clock.advance(3600)
    assert not log.raw, "nothing is said of what is over"


def test_a_flood_hides_nothing_that_others_try(clock: FakeClock, log: MemoryAudit) -> None:
    """A role that was refused ten times a second for names that it made up: no other refusal, and no refused login, had
    a line for as long as it went on.
    """
    noisy = [Caller(Principal("User", f"noisy {number}"), f"10.0.0.{number}") for number in range(5)]

    def flood(second: int) -> None:
        for caller in noisy:
            for number in range(50):
                log.audit.refused(caller, Operation.READ, topic_resource(f"{second} {number}"))

    for second in range(20):
        flood(second)
        clock.advance(1)
    log.take()
    for number in range(FEW_LINES):
        log.audit.refused(ALICE, Operation.WRITE, topic_resource(f"{number}"))
        flood(100 + number)
    stranger = Caller(ANONYMOUS, "10.9.9.9")
    log.audit.login_refused(stranger, "PLAIN", "SASL_AUTHENTICATION_FAILED", "wrong")
    lines = log.take()
    assert len([line for line in lines if line.get("principal") == str(ALICE.principal)]) == FEW_LINES
    assert [line["host"] for line in lines if line["event"] == "login"] == ["10.9.9.9"]
    clock.advance(3600)
    assert not log.audit._repeats._kinds.used


def test_the_sources_that_are_told_apart_are_bounded(log: MemoryAudit) -> None:
    for number in range(SOURCES_MAX + 10):
        log.audit.refused(Caller(ANONYMOUS, f"{number}"), Operation.READ, TOPIC)
    assert len(log.audit._repeats._lines_of) == SOURCES_MAX


def test_what_is_remembered_is_bounded(clock: FakeClock, log: MemoryAudit) -> None:
    for number in range(KINDS_MAX // LINES_PER_S * 2):
        for place in range(LINES_PER_S):
            name = "x" * 30_000 + f"{number} {place}"
            caller = Caller(Principal("User", f"{number} {place}{name}"), "10.0.0.9")
            for _ in range(2):
                log.audit.refused(caller, Operation.WRITE, topic_resource(name))
        clock.advance(1)
    known = log.audit._repeats._known
    assert len(known) <= KINDS_MAX
    assert sum(len(text) for one in known.values() for text in one.fields.values()) < KINDS_MAX * 600


def test_more_kinds_than_are_counted_are_dropped(
    clock: FakeClock, log: MemoryAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_repeats, "KINDS_MAX", 10)
    log = type(log)(clock)
    for number in range(12):
        log.audit.refused(ALICE, Operation.WRITE, topic_resource(f"{number}"))
    assert written(log) == 5
    clock.advance(2)
    log.audit.refused(ALICE, Operation.WRITE, topic_resource("12"))
    lines = log.take()
    assert [line["count"] for line in lines if line["event"] == "dropped"] == [7]
    assert lines[-1]["resource"] == "12"


def test_a_sink_without_room_is_told_of_later(clock: FakeClock, log: MemoryAudit) -> None:
    log.has_room = False
    log.audit.refused(ALICE, Operation.WRITE, TOPIC)
    log.audit.changed(ALICE, Change.TOPIC_DELETE, TOPIC, {})
    clock.advance(10)
    log.has_room = True
    clock.advance(1)
    assert log.take() == [{"time": "2023-11-14T22:13:31.000Z", "event": "dropped", "count": 2}]


def test_without_a_sink_nothing_is_kept(clock: FakeClock) -> None:
    audit = Audit(clock, with_logins=True)
    audit.refused(ALICE, Operation.WRITE, TOPIC)
    audit.login_refused(ALICE, "PLAIN", "LOGIN_REFUSED", "why")
    audit.logged_in(ALICE, "PLAIN")
    audit.changed(ALICE, Change.TOPIC_DELETE, TOPIC, {})
    assert not audit._repeats._known
    audit.close()


# --- logins ----------------------------------------------------------------------------------------------------------


def test_logins_that_are_good_have_lines_where_that_is_wanted(clock: FakeClock) -> None:
    for with_logins in (False, True):
        log = MemoryAudit(clock, with_logins=with_logins)
        log.audit.logged_in(ALICE, "PLAIN")
        lines = [(one["event"], one["result"], one["principal"], one["method"]) for one in log.take()]
        assert lines == ([("login", "accepted", "User:alice", "PLAIN")] if with_logins else [])


def test_a_refused_login_names_a_user_only_where_it_is_known(log: MemoryAudit) -> None:
    stranger = Caller(Principal("User", "ANONYMOUS"), "10.0.0.9", Origin("kafka", "SASL_SSL", "app-1"))
    log.audit.login_refused(stranger, "PLAIN", "LOGIN_REFUSED", "wrong", "bob")
    log.audit.login_refused(stranger, "PLAIN", "LOGIN_REFUSED", "wrong")
    known, unknown = log.take()
    assert (known["principal"], known["error"], known["reason"]) == ("User:bob", "LOGIN_REFUSED", "wrong")
    assert "principal" not in unknown


# --- changes ---------------------------------------------------------------------------------------------------------


def test_a_change_has_one_line_with_what_became_of_it(log: MemoryAudit) -> None:
    access = AccessControl(AllowAll(), log.audit)

    async def change(error: BaseException | None) -> None:
        async with access.change(ALICE, Operation.CREATE, TOPIC, Change.TOPIC_CREATE, partitions=3):
            if error is not None:
                raise error

    async def fails() -> None:
        async with access.record(ALICE, Change.GROUP_DELETE, TOPIC) as recording:
            recording.fails("NON_EMPTY_GROUP")

    asyncio.run(change(None))
    for error in TopicExists("there"), ValueError("a bug"), asyncio.CancelledError():
        with pytest.raises(type(error)):
            asyncio.run(change(error))
    asyncio.run(fails())
    lines = log.take()
    assert [(line["result"], line.get("error")) for line in lines] == [
        ("done", None),
        ("failed", "TOPIC_EXISTS"),
        ("failed", BUG),
        ("unfinished", None),
        ("failed", "NON_EMPTY_GROUP"),
    ]
    assert lines[0]["operation"] == "topic.create"
    assert lines[0]["details"] == {"partitions": 3}
    assert (lines[0]["principal"], lines[0]["client"]) == ("User:alice", "app-1")


def test_a_change_that_is_refused_has_the_line_of_the_refusal_alone(log: MemoryAudit) -> None:
    access = AccessControl(DenyAll(), log.audit)
    with pytest.raises(ClusterNotAuthorized):
        access.change(ALICE, Operation.ALTER, CLUSTER, Change.LOGGER_LEVELS)
    with pytest.raises(ClusterNotAuthorized), access.record(ALICE, Change.LOGGER_LEVELS, CLUSTER):
        access.require(ALICE, Operation.ALTER, CLUSTER)
    assert [(line["event"], line["count"]) for line in log.take() if "count" in line] == [("refusal", 1)]


def test_a_change_is_handed_over_before_its_caller_goes_on(log: MemoryAudit) -> None:
    access = AccessControl(AllowAll(), log.audit)

    async def change() -> None:
        async with access.record(ALICE, Change.TOPIC_DELETE, TOPIC):
            assert not log.raw
        assert log.handed_over_count == 1

    asyncio.run(change())


def test_changes_are_not_counted_together(log: MemoryAudit) -> None:
    for _ in range(1000):
        log.audit.changed(ALICE, Change.TOPIC_CREATE, TOPIC, {})
    assert written(log) == 1000


def test_changes_of_one_step_are_all_written_also_when_their_caller_has_gone(log: MemoryAudit) -> None:
    access = AccessControl(AllowAll(), log.audit)

    async def main(gives_up: bool) -> None:
        several = [
            access.record(ALICE, Change.ACL_CREATE, topic_resource(f"{number}")) for number in range(1000)
        ]

        async def change() -> None:
            async with access.record_each(several):
                pass

        task = asyncio.get_running_loop().create_task(change())
        await asyncio.sleep(0)
        assert log.raw
        assert len(log.raw) < 1000, "others have their turn in between"
        if gives_up:
            task.cancel()
        await asyncio.wait([task])
        assert [line["resource"] for line in log.take()] == [f"{number}" for number in range(1000)]

    asyncio.run(main(False))
    asyncio.run(main(True))
