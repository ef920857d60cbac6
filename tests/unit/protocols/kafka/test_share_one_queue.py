"""One queue for consumers of both protocols, and for random share consumers beside a model."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.consumer import OutboxConsumer
from magnetar.broker.subscriptions.model import (
    AckedId,
    ConsumerSpec,
    Delivery,
    SubscribeRequest,
    SubscriptionType,
)
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.pulsar.entry import read_entry
from tests.unit.protocols.kafka.share_queue import (
    ACCEPT,
    REJECT,
    RELEASE,
    Batches,
    Queue,
    Run,
    joins,
)


class PulsarPort:
    """A Pulsar consumer that takes everything."""

    is_writable = True

    def __init__(self) -> None:
        self.got: list[Delivery] = []
        self._arrived = asyncio.Event()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.got += deliveries
        self._arrived.set()

    async def has(self, count: int) -> None:
        """Return when so many deliveries have come."""
        while len(self.got) < count:
            self._arrived.clear()
            await self._arrived.wait()

    def active_changed(self, is_active: bool) -> None: ...

    def reached_end(self) -> None: ...

    def closed(self) -> None: ...


async def pulsar_consumer(
    client: Any, partition: Partition, kind: SubscriptionType = SubscriptionType.SHARED
) -> tuple[OutboxConsumer, PulsarPort]:
    port = PulsarPort()
    wanted = SubscribeRequest("g", ConsumerSpec("pulsar", kind))
    return await client.broker.subscriptions.subscribe(partition, wanted, port), port


def test_consumers_of_both_protocols_share_one_queue(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(*[1] * 6)
        await client.ask("share_group_heartbeat", 1, joins())
        assert await queue.fetch("m", max_records=2) == [(0, 1, 1)]
        member, port = await pulsar_consumer(client, queue.partition)
        member.subscription.flow(member, 3)
        await port.has(3)
        assert await queue.fetch("m") == [(5, 5, 1)]
        assert await queue.lag() == 6
        ids = [AckedId(one.ledger_id, one.entry_id) for one in port.got]
        done = member.subscription.acknowledge(member, ids[:2], cumulative=False)
        assert done is None
        assert await queue.lag() == 4
        assert await queue.acknowledge("m", [(0, 1, [ACCEPT]), (5, 5, [ACCEPT])]) == ErrorCode.NONE
        assert await queue.lag() == 1
        assert member.subscription.backlog() == 1
        await client.broker.subscriptions.leave(member)
        assert await queue.fetch("m") == [(4, 4, 1)]

    with_broker(scenario)


def test_what_kafka_releases_goes_to_pulsar(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(1)
        assert await queue.fetch("m") == [(0, 0, 1)]
        member, port = await pulsar_consumer(client, queue.partition)
        member.subscription.flow(member, 10)
        assert await queue.acknowledge("m", [(0, 0, [RELEASE])]) == ErrorCode.NONE
        await port.has(1)
        assert port.got[0].redelivery_count == 1
        position = port.got[0][:2]
        member.subscription.redeliver(member, [position], None)
        await port.has(2)
        await client.broker.subscriptions.leave(member)
        assert await queue.fetch("m") == [(0, 0, 3)]

    with_broker(scenario)


def test_pulsar_gets_the_rest_of_what_kafka_has_acknowledged_in_part(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(6)
        await client.ask("share_group_heartbeat", 1, joins())
        assert await queue.fetch("m") == [(0, 5, 1)]
        said = [(0, 1, [ACCEPT]), (2, 2, [RELEASE]), (4, 5, [RELEASE, ACCEPT])]
        assert await queue.acknowledge("m", said) == ErrorCode.NONE
        member, port = await pulsar_consumer(client, queue.partition)
        member.subscription.flow(member, 10)
        await port.has(2)
        counts = [read_entry(memoryview(one.payload), verify=True).num_messages for one in port.got]
        assert (counts, [one.redelivery_count for one in port.got]) == ([1, 1], [1, 1])
        assert member.state.permits == 8
        member.subscription.redeliver(member, [port.got[0][:2]], None)
        await port.has(3)
        assert (port.got[2][:2], port.got[2].redelivery_count) == (port.got[0][:2], 2)
        ids = [AckedId(one.ledger_id, one.entry_id) for one in port.got[1:]]
        member.subscription.acknowledge(member, ids, cumulative=False)
        assert await queue.lag() == 1
        assert await queue.acknowledge("m", [(3, 3, [ACCEPT])]) == ErrorCode.NONE
        assert await queue.lag() == 0
        await client.broker.subscriptions.leave(member)

    with_broker(scenario)


def test_a_subscription_of_another_type_excludes_share_consumers(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(1)
        member, _ = await pulsar_consumer(client, queue.partition, SubscriptionType.EXCLUSIVE)
        (row,) = (await queue.ask("m")).responses[0].partitions
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "different type" in row.error_message
        await client.broker.subscriptions.leave(member)

    with_broker(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_random_consumers_agree_with_a_model(with_broker: Run, seed: int) -> None:
    """Every record is with one consumer at most, with the delivery count that the model has; in the end each has been
    accepted, rejected or given up once.
    """
    limit = 4

    async def scenario(client: Any) -> None:
        dice = random.Random(seed)
        sizes = [dice.randint(1, 6) for _ in range(30)]
        queue = await Queue(client).begin(*sizes, delivery_count_limit=str(limit))
        total = sum(sizes)
        held: dict[str, dict[int, int]] = {name: {} for name in "abc"}
        delivered = dict.fromkeys(range(total), 0)  # in vain
        done: set[int] = set()

        def speak(name: str) -> Batches:
            mine = sorted(held[name])
            said: list[tuple[int, int, list[int]]] = []
            for offset in dice.sample(mine, dice.randint(0, len(mine))):
                kind = dice.choice([ACCEPT, ACCEPT, RELEASE, REJECT])
                said.append((offset, offset, [kind]))
                del held[name][offset]
                if kind == RELEASE:
                    delivered[offset] += 1
                if kind != RELEASE or delivered[offset] == limit:
                    done.add(offset)
            return sorted(said)

        for step in range(2000):
            if len(done) == total:
                break
            name = dice.choice("abc")
            action = dice.random()
            if action < 0.1 and name in queue.epochs:
                queue.epochs[name] = dice.choice([0, -1])  # begins anew, or ends
            epoch = queue.epochs.get(name, 0)
            said = speak(name) if epoch > 0 or epoch == -1 else []
            if epoch <= 0:
                held[name].clear()
            mode = dice.choice([0, 1])
            got = await queue.fetch(name, said, max_records=dice.randint(1, 8), share_acquire_mode=mode)
            if epoch == -1:
                del queue.epochs[name]
                assert not got
            for first, last, count in got:
                for offset in range(first, last + 1):
                    assert offset not in done, (seed, step)
                    assert all(offset not in some for some in held.values()), (seed, step)
                    assert count == delivered[offset] + 1, (seed, step, offset)
                    held[name][offset] = count
        assert len(done) == total, (seed, total - len(done))
        assert (await queue.stored()).mark_delete == total

    with_broker(scenario)
