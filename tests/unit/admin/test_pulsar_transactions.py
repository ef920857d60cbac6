"""The administration of Pulsar's transactions: documents as Apache Pulsar 4.0.8 gave them, with what is true here."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.admin.app import create_app
from magnetar.base.exposition import render
from magnetar.base.metrics import Metrics
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.testing.pulsar import PulsarClient
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandFlow, CommandSubscribe, MessageIdData
from tests.unit.protocols.pulsar.pulsar_consuming import subscribe
from tests.unit.protocols.pulsar.pulsar_producing import produce
from tests.unit.protocols.pulsar.transacting import (
    ABORT,
    COMMIT,
    acknowledge,
    add_partition,
    begin,
    end,
    write,
)

from .world import NAME, World, run

R = "/admin/v3/transactions"
T = "public/default/t"
NOT_THERE = "/0/999"
SHARED = 1

Play = Callable[[Callable[[World], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return lambda scenario: run(tmp_path, scenario)


async def _writing(world: World) -> tuple[PulsarClient, int]:
    """A client with a transaction that has written one message, behind one of none."""
    await world.publish(1)
    client = await world.door.connected()
    await produce(client)
    transaction = await begin(client, timeout_ms=60_000)
    await add_partition(client, transaction)
    write(client, transaction, 0)
    await client.hear(BaseCommand.SEND_RECEIPT)
    return client, transaction


async def _consuming(world: World) -> tuple[PulsarClient, list[MessageIdData]]:
    """A client whose consumer has got three batches of two messages, and their ids."""
    await world.publish(3, batch=2)
    client = await world.door.connected()
    await subscribe(client, subType=SHARED, initialPosition=CommandSubscribe.Earliest, permits=0)
    client.say(CommandFlow(consumer_id=1, messagePermits=100))
    found = [(await client.hear(BaseCommand.MESSAGE)).message_id for _ in range(3)]
    return client, [MessageIdData(ledgerId=one.ledgerId, entryId=one.entryId) for one in found]


async def _reason(world: World, method: str, path: str, status: int) -> str:
    answer: dict[str, str] = await world.ask(method, f"{R}{path}", status=status)
    assert answer.keys() == {"reason"}
    return answer["reason"]


def test_there_is_one_coordinator(play: Play) -> None:
    async def scenario(world: World) -> None:
        assert await world.ask("GET", f"{R}/coordinators") == [{"id": 0, "brokerServiceUrl": ""}]
        (stats,) = (await world.ask("GET", f"{R}/coordinatorStats")).values()
        assert stats == await world.ask("GET", f"{R}/coordinatorStats?coordinatorId=0")
        now = world.door.clock.now_ms()
        times = {"recoverStartTime": now, "recoverEndTime": now}
        assert (
            stats == {"state": "Ready", "leastSigBits": -1, "lowWaterMark": -1, "ongoingTxnSize": 0} | times
        )
        for path in ("/coordinatorStats?coordinatorId=1", "/slowTransactions/1?coordinatorId=1"):
            reason = await _reason(world, "GET", path, 404)
            assert reason == "Transaction coordinator not found! coordinator id : 1"

    play(scenario)


def test_the_coordinator_counts_what_is_open_and_knows_up_to_where_all_has_ended(play: Play) -> None:
    async def scenario(world: World) -> None:
        client = await world.door.connected()
        first, second = await begin(client), await begin(client)

        async def stats() -> tuple[int, int, int]:
            found = await world.ask("GET", f"{R}/coordinatorStats?coordinatorId=0")
            return found["ongoingTxnSize"], found["lowWaterMark"] - first, found["leastSigBits"] - first

        assert await stats() == (2, -1, 1)
        await end(client, second, COMMIT)
        assert await stats() == (1, -1, 1)
        await end(client, first, ABORT)
        assert await stats() == (0, 1, 1)

    play(scenario)


def test_a_transaction_shows_where_it_begins_in_topics_and_what_it_has_acknowledged(play: Play) -> None:
    async def scenario(world: World) -> None:
        client, transaction = await _writing(world)
        began = world.door.clock.now_ms()
        found = await world.ask("GET", f"{R}/transactionMetadata/0/{transaction}")
        ledger = world.partition.log.last_ledger_id
        assert found == {
            "txnId": f"(0,{transaction})",
            "status": "OPEN",
            "openTimestamp": began,
            "timeoutAt": 60_000,
            "producedPartitions": {NAME.full: {"startPosition": f"{ledger}:1", "aborted": False}},
            "ackedPartitions": {},
        }
        assert await world.ask("GET", f"{R}/slowTransactions/59999") == {f"(0,{transaction})": found}
        assert await world.ask("GET", f"{R}/slowTransactions/60000") == {}
        await end(client, transaction, COMMIT)
        for method, path in (("GET", "/transactionMetadata"), ("POST", "/abortTransaction")):
            reason = await _reason(world, method, f"{path}/0/{transaction}", 404)
            assert reason == f"The transaction with this txdID `(0,{transaction})`not found"
            reason = await _reason(world, method, f"{path}/1/{transaction}", 404)
            assert reason == "Transaction coordinator with id 1 not found!"

    play(scenario)


@pytest.mark.parametrize("action", ["commit", "abort", "abort by an administrator"])
def test_a_topic_shows_what_it_has_of_transactions(play: Play, action: str) -> None:
    async def scenario(world: World) -> None:
        client, transaction = await _writing(world)
        ledger = world.partition.log.last_ledger_id
        stats, one = f"{R}/transactionBufferStats/{T}", f"{R}/transactionInBufferStats/{T}/0/{transaction}"
        assert await world.ask("GET", stats) == {
            "state": "Ready",
            "maxReadPosition": f"{ledger}:0",
            "ongoingTxnSize": 1,
            "totalAbortedTransactions": 0,
        }
        marks = (await world.ask("GET", f"{stats}?lowWaterMarks=true"))["lowWaterMarks"]
        assert marks == {"0": transaction - 1}
        assert await world.ask("GET", one) == {"startPosition": f"{ledger}:1", "aborted": False}
        if action == "abort by an administrator":
            await world.ask("POST", f"{R}/abortTransaction/0/{transaction}", {}, status=204)
        else:
            await end(client, transaction, COMMIT if action == "commit" else ABORT)
        is_aborted = action != "commit"
        assert await world.ask("GET", stats) == {
            "state": "Ready",
            "maxReadPosition": f"{ledger}:2",
            "ongoingTxnSize": 0,
            "totalAbortedTransactions": int(is_aborted),
        }
        assert await world.ask("GET", one) == {"aborted": is_aborted}
        assert await world.ask("GET", f"{R}/transactionInBufferStats/{T}{NOT_THERE}") == {"aborted": False}
        counts = await world.ask("GET", "/admin/v2/persistent/public/default/t/stats")
        names = ("ongoingTxnCount", "committedTxnCount", "abortedTxnCount")
        assert [counts[name] for name in names] == [0, int(not is_aborted), int(is_aborted)]

    play(scenario)


def test_a_subscription_shows_what_waits_for_an_end(play: Play) -> None:
    async def scenario(world: World) -> None:
        client, ids = await _consuming(world)
        ledger = ids[0].ledgerId
        transaction = await begin(client)
        stats, one = f"{R}/pendingAckStats/{T}/s", f"{R}/transactionInPendingAckStats/{T}/s/0/{transaction}"
        assert await world.ask("GET", stats) == {"state": "Ready", "ongoingTxnSize": 0}
        assert await world.ask("GET", one) == {}
        await acknowledge(client, transaction, MessageIdData(ledgerId=ledger, entryId=1, ack_set=[0b01]))
        assert await world.ask("GET", stats) == {"state": "Ready", "ongoingTxnSize": 1}
        assert await world.ask("GET", one) == {}

        async def state(entry: int, index: str = "") -> str:
            path = f"{R}/positionStatsInPendingAck/{T}/s/{ledger}/{entry}{index}"
            found: dict[str, str] = await world.ask("GET", path)
            return found["state"]

        assert [await state(number) for number in range(4)] == [
            "NotInPendingAck",
            "PendingAck",
            "NotInPendingAck",
            "NotInPendingAck",
        ]
        assert [await state(1, f"?batchIndex={number}") for number in (0, 1, 2)] == [
            "NotInPendingAck",
            "PendingAck",
            "InvalidPosition",
        ]
        await acknowledge(client, transaction, ids[0])
        assert await world.ask("GET", one) == {"cumulativeAckPosition": f"{ledger}:0"}
        found = await world.ask("GET", f"{R}/transactionMetadata/0/{transaction}")
        assert found["ackedPartitions"] == {NAME.full: {"s": {"cumulativeAckPosition": f"{ledger}:0"}}}
        await end(client, transaction, COMMIT)
        assert [await state(number) for number in range(2)] == ["MarkDelete", "NotInPendingAck"]
        assert await world.ask("GET", stats) == {"state": "Ready", "ongoingTxnSize": 0}

    play(scenario)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/transactionBufferStats/public/default/no", "Topic persistent://public/default/no not found"),
        ("/transactionInBufferStats/public/default/no/0/1", "Topic persistent://public/default/no not found"),
        ("/pendingAckStats/public/default/no/s", "Topic persistent://public/default/no not found"),
        (f"/pendingAckStats/{T}/no", f"Subscription no not found for topic {NAME.full}"),
        (f"/transactionInPendingAckStats/{T}/no/0/1", f"Subscription no not found for topic {NAME.full}"),
        (f"/positionStatsInPendingAck/{T}/no/0/1", f"Subscription no not found for topic {NAME.full}"),
    ],
)
def test_what_is_not_there_is_not_found(play: Play, path: str, reason: str) -> None:
    async def scenario(world: World) -> None:
        assert await _reason(world, "GET", path, 404) == reason

    play(scenario)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/coordinatorInternalStats/0"),
        ("GET", f"/pendingAckInternalStats/{T}/s"),
        ("GET", f"/transactionBufferInternalStats/{T}"),
        ("POST", "/transactionCoordinator/replicas"),
    ],
)
def test_what_has_no_meaning_here_is_refused_with_a_reason(play: Play, method: str, path: str) -> None:
    async def scenario(world: World) -> None:
        body: Any = None if method == "GET" else 20
        answer = await world.ask(method, f"{R}{path}", body, status=501)
        assert answer["reason"].endswith(": not supported by Magnetar.")

    play(scenario)


def test_they_are_counted(play: Play) -> None:
    async def scenario(world: World) -> None:
        metrics = Metrics()
        create_app(world.broker.cases, metrics)
        client = await world.door.connected()
        for action in (COMMIT, COMMIT, ABORT):
            await end(client, await begin(client), action)
        await begin(client, timeout_ms=2_000)
        await begin(client)
        for _ in range(5):
            world.door.clock.advance(1.0)
            for _ in range(20):
                await asyncio.sleep(0)
        lines = render(metrics).decode().splitlines()
        found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("pulsar_txn_"))
        assert {name.partition("{")[0]: float(count) for name, count in found.items()} == {
            "pulsar_txn_active_count": 1,
            "pulsar_txn_created_total": 5,
            "pulsar_txn_committed_total": 2,
            "pulsar_txn_aborted_total": 2,
            "pulsar_txn_timeout_total": 1,
            "pulsar_txn_append_log_total": 9,
        }
        assert all('{coordinator_id="0"}' in name for name in found)

    play(scenario)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/coordinators"),
        ("GET", "/coordinatorStats"),
        ("GET", "/slowTransactions/1"),
        ("GET", "/transactionMetadata/0/0"),
        ("GET", f"/transactionBufferStats/{T}"),
        ("GET", f"/transactionInBufferStats/{T}/0/0"),
        ("GET", f"/pendingAckStats/{T}/s"),
        ("GET", f"/transactionInPendingAckStats/{T}/s/0/0"),
        ("GET", f"/positionStatsInPendingAck/{T}/s/0/0"),
        ("POST", "/abortTransaction/0/0"),
    ],
)
def test_a_server_without_them_says_so(tmp_path: Path, method: str, path: str) -> None:
    async def scenario(world: World) -> None:
        reason = await _reason(world, method, path, 503)
        assert reason == "This Broker is not configured with transactionCoordinatorEnabled=true."

    run(tmp_path, scenario, transactions=TransactionSettings(transaction_coordinator_enabled=False))
