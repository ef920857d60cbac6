"""What pulsar-admin does to a topic beside its statistics: examines, counts, trims, and asks for what is stored."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from .world import N, Scenario, T, World, run

Play = Callable[[Scenario], None]
P = "/admin/v2/persistent/public/default/p"
START = {"ledgerId": -1, "entryId": -1}


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return partial(run, tmp_path)


@pytest.mark.parametrize(
    ("query", "seen"),
    [
        ("", b"m5"),
        ("?initialPosition=latest&messagePosition=2", b"m4"),
        ("?initialPosition=latest&messagePosition=9", b"m1"),
        ("?initialPosition=earliest", b"m1"),
        ("?initialPosition=earliest&messagePosition=0", b"m1"),
        ("?initialPosition=earliest&messagePosition=3", b"m3"),
        ("?initialPosition=earliest&messagePosition=9", b"m5"),
    ],
)
def test_entries_are_examined_from_either_end(play: Play, query: str, seen: bytes) -> None:
    async def scenario(world: World) -> None:
        await world.publish(2)
        world.partition.log.roll_if_old(0)  # the others are in another ledger
        await world.publish(3)
        assert (await world.ask("GET", f"{T}/examinemessage{query}")).content == seen

    play(scenario)


def test_entries_that_are_deleted_are_not_counted(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(5)
        await world.partition.log.trim(log_start=2)
        found = await world.ask("GET", f"{T}/examinemessage?initialPosition=earliest&messagePosition=2")
        assert found.content == b"m4"
        found = await world.ask("GET", f"{T}/examinemessage?initialPosition=latest&messagePosition=9")
        assert found.content == b"m3"

    play(scenario)


def test_what_cannot_be_examined(play: Play) -> None:
    async def scenario(world: World) -> None:
        refusal = {"reason": "Could not examine messages due to the total message is zero"}
        assert await world.ask("GET", f"{T}/examinemessage", status=412) == refusal
        await world.ask("PUT", f"{P}/partitions", 2, 204)
        await world.ask("GET", f"{P}/examinemessage", status=405)
        await world.ask("GET", f"{P}-partition-1/examinemessage", status=412)
        await world.ask("GET", f"{P}x/examinemessage", status=404)

    play(scenario)


def test_a_backlog_is_counted_without_what_is_acknowledged(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{T}/subscription/s", START, 204)
        path = f"{T}/subscription/s/analyzeBacklog"
        empty = await world.ask("POST", path)
        assert (empty["entries"], empty["messages"], empty["aborted"]) == (0, 0, False)
        assert "firstMessageId" not in empty
        await world.publish(4)
        await world.publish(batch=4)
        cursor = world.broker.subscription_admin.cursor(world.partition, "s")
        cursor.ack_individual([(0, 1), (2, 3), (4, 6)])
        (ledger,) = (one.ledger_id for one in world.partition.log.ledgers)
        found = await world.ask("POST", path)
        assert found == {
            "entries": 3,
            "messages": 4,
            "filterAcceptedEntries": 3,
            "filterAcceptedMessages": 4,
            "filterRejectedEntries": 0,
            "filterRescheduledEntries": 0,
            "filterRejectedMessages": 0,
            "filterRescheduledMessages": 0,
            "aborted": False,
            "firstMessageId": f"{ledger}:1",
            "lastMessageId": f"{ledger}:4",
        }
        from_start = await world.ask("POST", path, START)
        assert (from_start["entries"], from_start["messages"]) == (4, 5)
        from_later = await world.ask("POST", path, {"ledgerId": ledger, "entryId": 4})
        assert (from_later["entries"], from_later["messages"]) == (1, 2)
        await world.ask("POST", f"{T}/subscription/nope/analyzeBacklog", status=404)
        await world.ask("PUT", f"{P}/partitions", 2, 204)
        await world.ask("POST", f"{P}/subscription/s/analyzeBacklog", status=405)

    play(scenario)


def test_a_long_backlog_is_counted_up_to_a_limit(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.broker.subscriptions.admin.ANALYZED_ENTRIES_MAX", 3)

    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{T}/subscription/s", START, 204)
        await world.publish(3)
        whole = await world.ask("POST", f"{T}/subscription/s/analyzeBacklog")
        assert (whole["entries"], whole["aborted"]) == (3, False)
        await world.publish(2)
        part = await world.ask("POST", f"{T}/subscription/s/analyzeBacklog")
        assert (part["entries"], part["aborted"]) == (3, True)

    play(scenario)


def test_trimming_drops_what_retention_lets_go(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{T}/subscription/s", START, 204)
        await world.publish(3)
        none = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        await world.ask("POST", f"{T}/retention", none, 204)
        await world.ask("POST", f"{T}/trim")
        assert world.partition.log.log_start == 0  # a subscription holds it
        await world.ask("POST", f"{T}/subscription/s/skip_all", status=204)
        await world.ask("POST", f"{T}/trim")
        assert world.partition.log.log_start == 3
        await world.ask("POST", f"{T}x/trim", status=404)
        refusal = {"reason": "Trim on a non-persistent topic is not allowed"}
        assert (
            await world.ask("POST", f"{T.replace('persistent', 'non-persistent')}/trim", status=405)
            == refusal
        )
        await world.ask("PUT", f"{P}/partitions", 2, 204)
        await world.ask("POST", f"{P}/trim")

    play(scenario)


def test_a_partitioned_topic_lacks_no_partitions(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{P}/partitions", 2, 204)
        await world.ask("POST", f"{P}/createMissedPartitions", status=204)
        refusal = {"reason": "Topic persistent://public/default/t does not exist"}
        assert await world.ask("POST", f"{T}/createMissedPartitions", status=404) == refusal
        await world.ask("POST", f"{P}x/createMissedPartitions", status=404)

    play(scenario)


def test_what_is_stored_of_a_topic(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.publish(3)
        await world.ask("PUT", f"{T}/subscription/s", START, 204)
        found = await world.ask("GET", f"{T}/internal-info")
        (ledger,) = found["ledgers"]
        assert (ledger["entries"], ledger["isOffloaded"]) == (3, False)
        assert found["cursors"]["s"]["markDelete"].keys() == {"ledgerId", "entryId"}
        await world.ask("PUT", f"{P}/partitions", 2, 204)
        names = [f"persistent://public/default/p-partition-{index}" for index in range(2)]
        assert list((await world.ask("GET", f"{P}/internal-info"))["partitions"]) == names
        assert "ledgers" in await world.ask("GET", f"{P}-partition-1/internal-info")
        await world.ask("GET", f"{P}x/internal-info", status=404)

    play(scenario)


def test_all_policies_of_a_topic_go_and_its_properties_stay(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{T}/properties", {"a": "b"}, 204)
        await world.ask("POST", f"{T}/messageTTL", 7, 204)
        await world.ask("DELETE", f"{T}/policies", status=204)
        assert (await world.ask("GET", f"{T}/messageTTL")).content == b""
        assert await world.ask("GET", f"{T}/properties") == {"a": "b"}
        await world.ask("DELETE", f"{T}/policies", status=204)
        await world.ask("DELETE", f"{T}x/policies", status=404)

    play(scenario)


def test_topics_and_namespaces_have_one_cluster(play: Play) -> None:
    async def scenario(world: World) -> None:
        for path, accepted, refused in ((f"{T}/replication", 204, 412), (f"{N}/allowedClusters", 200, 403)):
            await world.ask("POST", path, ["standalone"], accepted)
            assert await world.ask("GET", path) == ["standalone"]
            await world.ask("POST", path, ["elsewhere"], refused)
        await world.ask("DELETE", f"{T}/replication", status=204)

    play(scenario)
