"""One queue for consumers of both protocols, and for random share consumers beside a model."""

import asyncio
import random
from collections import defaultdict
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
from magnetar.ledger.cursor import Counted, Cursor
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.pulsar.entry import read_entry
from tests.unit.protocols.kafka.share_queue import (
    ACCEPT,
    REJECT,
    RELEASE,
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
        await queue.until_stored(lambda cursor: cursor.counted == (Counted(0, 1, 2),))

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


@pytest.mark.parametrize("released", [False, True])
def test_pulsar_alone_gets_the_rest_of_what_kafka_acknowledged_before(
    with_broker: Run, released: bool
) -> None:
    """No share consumer is there: entries are read with their bytes, whole."""

    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(6)
        await client.ask("share_group_heartbeat", 1, joins())
        assert await queue.fetch("m") == [(0, 5, 1)]
        last = RELEASE if released else ACCEPT
        said = [(0, 1, [ACCEPT]), (2, 3, [RELEASE]), (4, 5, [last])]
        queue.epochs["m"] = -1  # its last request
        assert await queue.acknowledge("m", said) == ErrorCode.NONE
        member, port = await pulsar_consumer(client, queue.partition)
        member.subscription.flow(member, 10)
        await port.has(1)
        (got,) = port.got
        left = 4 if released else 2
        assert read_entry(memoryview(got.payload), verify=True).num_messages == left
        assert (got.redelivery_count, member.state.permits) == (1, 10 - left)
        member.subscription.acknowledge(member, [AckedId(got.ledger_id, got.entry_id)], cumulative=False)
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


class Book:
    """What a queue is to be: who holds what, what is done, and how often each record was delivered in vain."""

    def __init__(self, total: int, limit: int) -> None:
        self.limit = limit
        self.held: dict[str, set[int]] = defaultdict(set)
        self.in_vain = dict.fromkeys(range(total), 0)
        self.done: set[int] = set()

    @property
    def is_complete(self) -> bool:
        return len(self.done) == len(self.in_vain)

    def given(self, name: str, offset: int, count: int) -> None:
        assert offset not in self.done
        assert not any(offset in some for some in self.held.values())
        assert count == self.in_vain[offset] + 1, offset
        self.held[name].add(offset)

    def says(self, name: str, offset: int, kind: int) -> None:
        self.held[name].remove(offset)
        if kind == RELEASE:
            self.in_vain[offset] += 1
        if kind != RELEASE or self.in_vain[offset] >= self.limit:
            self.done.add(offset)

    def some_of(self, dice: random.Random, name: str) -> list[int]:
        mine = sorted(self.held[name])
        return sorted(dice.sample(mine, dice.randint(0, len(mine))))

    def is_stored(self, cursor: Cursor) -> None:
        """What is stored after an answer has all that was said until then."""
        assert all(cursor.is_acknowledged(offset) for offset in self.done)
        counts = {at: one.times for one in cursor.counted for at in range(one.start, one.stop)}
        assert counts == {at: n for at, n in self.in_vain.items() if n and at not in self.done}


async def share_step(queue: Queue, book: Book, dice: random.Random) -> None:
    """A request of one of three share consumers, with what it says of what it holds; a few begin anew, or end."""
    name = dice.choice("abc")
    if dice.random() < 0.1 and name in queue.epochs:
        queue.epochs[name] = dice.choice([0, -1])
    epoch = queue.epochs.get(name, 0)
    said: list[tuple[int, int, list[int]]] = []
    for offset in book.some_of(dice, name) if epoch else []:
        kind = dice.choice([ACCEPT, ACCEPT, RELEASE, REJECT])
        said.append((offset, offset, [kind]))
        book.says(name, offset, kind)
    if epoch <= 0:
        book.held[name].clear()
    got = await queue.fetch(
        name, said, max_records=dice.randint(1, 8), share_acquire_mode=dice.choice([0, 1])
    )
    if epoch == -1:
        del queue.epochs[name]
        assert not got
    if said:
        book.is_stored(await queue.stored())
    for first, last, count in got:
        for offset in range(first, last + 1):
            book.given(name, offset, count)


@pytest.mark.parametrize("seed", range(8))
def test_random_consumers_agree_with_a_model(with_broker: Run, seed: int) -> None:
    """Every record is with one consumer at most, with the delivery count that the model has; in the end each has been
    accepted, rejected or given up once.  Now and then all consumers lose their connection.
    """

    async def scenario(client: Any) -> None:
        dice = random.Random(seed)
        sizes = [dice.randint(1, 6) for _ in range(30)]
        book = Book(sum(sizes), 4)
        queue = await Queue(client).begin(*sizes, delivery_count_limit=str(book.limit))
        for _ in range(2000):
            if book.is_complete:
                break
            await share_step(queue, book, dice)
            if dice.random() < 0.03:
                await client.broker.subscriptions.close_partition(queue.partition)
                book.held.clear()
        assert book.is_complete
        assert (await queue.stored()).mark_delete == sum(sizes)

    with_broker(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_random_consumers_of_both_protocols_agree_with_a_model(with_broker: Run, seed: int) -> None:
    """The same with a consumer of Pulsar's beside them, which comes, takes, acknowledges, refuses and leaves."""
    total = 100

    async def scenario(client: Any) -> None:
        dice = random.Random(seed)
        book = Book(total, 4)
        queue = await Queue(client).begin(*[1] * total, delivery_count_limit=str(book.limit))
        member: OutboxConsumer | None = None
        port = PulsarPort()

        def look() -> None:
            for one in port.got:
                places[one.entry_id] = one[:2]
                book.given("pulsar", one.entry_id, one.redelivery_count + 1)
            port.got.clear()

        async def pulsar_step() -> None:
            nonlocal member, port
            if member is None:
                member, port = await pulsar_consumer(client, queue.partition)
            subscription = member.subscription
            for offset in book.some_of(dice, "pulsar"):
                kind = dice.choice([ACCEPT, RELEASE])
                book.held["pulsar"].remove(offset)
                if kind == ACCEPT:
                    book.done.add(offset)
                    subscription.acknowledge(member, [AckedId(*places[offset])], cumulative=False)
                else:
                    book.in_vain[offset] += 1
                    subscription.redeliver(member, [places[offset]], None)
                    look()
            subscription.flow(member, dice.randint(0, 5))
            await settle()
            look()
            if dice.random() < 0.1:
                await client.broker.subscriptions.leave(member)
                book.held["pulsar"].clear()
                member = None

        places: dict[int, tuple[int, int]] = {}
        await share_step(queue, book, dice)  # the group begins at the start, a subscription would at the end
        for _ in range(3000):
            if book.is_complete:
                break
            await (pulsar_step() if dice.random() < 0.3 else share_step(queue, book, dice))
            await settle()
            look()
            if dice.random() < 0.02:
                await client.broker.subscriptions.close_partition(queue.partition)
                book.held.clear()
                member = None
        assert book.is_complete
        if member is not None:
            await client.broker.subscriptions.leave(member)
        await queue.until_stored(lambda cursor: cursor.mark_delete == total)

    with_broker(scenario)


async def settle() -> None:
    """Let happen what can happen now."""
    for _ in range(30):
        await asyncio.sleep(0)


def test_each_of_two_fetches_of_one_session_is_answered(with_broker: Run) -> None:
    """The second one took the first one's place: the first one waited for ever, with its request."""

    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin()
        await queue.fetch("m", topics=[])
        first = asyncio.ensure_future(queue.ask("m", topics=[], max_wait_ms=100))
        await asyncio.sleep(0)
        queue.epochs["m"] += 1
        second = asyncio.ensure_future(queue.ask("m", topics=[], max_wait_ms=100))
        async with asyncio.timeout(60):
            answers = await asyncio.gather(first, second)
        assert [one.error_code for one in answers] == [ErrorCode.NONE] * 2
        assert not client.service.fetches_waiting

    with_broker(scenario)
