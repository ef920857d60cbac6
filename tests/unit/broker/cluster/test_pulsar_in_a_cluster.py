"""What Pulsar clients hear of a cluster of brokers, and that a bundle goes without a message lost or sent twice."""

from typing import Any

import httpx
import pytest

from magnetar.admin.access import Access
from magnetar.admin.app import create_app
from magnetar.base.metrics import Metrics
from magnetar.broker.errors import NotLeader
from magnetar.broker.subscriptions.model import ConsumerSpec, SubscribeRequest, SubscriptionType
from magnetar.broker.topics.roots import EPOCHS_ROOT
from magnetar.protocols.pulsar.consumers import ConnectedConsumer
from magnetar.testing.pulsar import PulsarClient
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandFlow,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
    ProducerAccessMode,
    ServerError,
)

from .world import NAMESPACE, Cluster, Member, cluster, run

T = "persistent://public/default/t"


async def look_up(member: Member, topic: str = T) -> CommandLookupTopicResponse:
    client = await member.client()
    found: CommandLookupTopicResponse = await client.ask(
        CommandLookupTopic(topic=topic, request_id=5), BaseCommand.LOOKUP_RESPONSE
    )
    return found


async def look_up_over_http(member: Member, path: str = "t") -> httpx.Response:
    app = create_app(member.broker.cases, Metrics(), access=Access.of(["test"]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return await client.get(f"/lookup/v2/topic/persistent/public/default/{path}")


async def producing(member: Member, topic: str = T) -> PulsarClient:
    client = await member.client()
    await client.ask(
        CommandProducer(topic=topic, producer_id=1, request_id=2, producer_name="p"),
        BaseCommand.PRODUCER_SUCCESS,
    )
    return client


def send(client: PulsarClient, sequence_id: int) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1_700_000_000_000)
    command = CommandSend(producer_id=1, sequence_id=sequence_id, num_messages=1)
    client.say(command, frame_entry(metadata, b"%d" % sequence_id))


async def consuming(member: Member, permits: int = 10) -> PulsarClient:
    client = await member.client()
    command = CommandSubscribe(
        topic=T,
        subscription="s",
        subType=CommandSubscribe.Exclusive,
        consumer_id=1,
        request_id=3,
        initialPosition=CommandSubscribe.Earliest,
    )
    await client.ask(command, BaseCommand.SUCCESS)
    client.say(CommandFlow(consumer_id=1, messagePermits=permits))
    return client


async def refused(client: PulsarClient, command: Any) -> "ServerError":
    error: ServerError = (await client.ask(command, BaseCommand.ERROR)).error
    return error


def acknowledge(client: PulsarClient, message_id: MessageIdData) -> None:
    client.say(CommandAck(consumer_id=1, ack_type=CommandAck.Individual, message_id=[message_id]))


async def made(world: Cluster) -> tuple[Member, Member]:
    """A topic without partitions, its owner, and another broker."""
    await world.brokers[0].make(T, is_partitioned=False)
    return world.owner(T), world.other(T)


@run
async def test_every_broker_looks_a_topic_up_at_its_owner_before_it_exists() -> None:
    async with cluster(3) as world:
        hosts = set()
        for topic in (T, *(f"{T}-partition-{index}" for index in range(8))):
            owner = world.owner(topic)
            hosts.add(owner.host)
            for asked in world.brokers:
                found = await look_up(asked, topic)
                assert found.response == CommandLookupTopicResponse.Connect
                assert found.authoritative
                assert found.brokerServiceUrl == f"pulsar://{owner.host}:6650"
                answer = await look_up_over_http(asked, topic.rpartition("/")[2])
                assert answer.status_code == 200
                assert answer.json()["brokerUrl"] == f"pulsar://{owner.host}:6650"
                assert answer.json()["httpUrl"] == f"http://{owner.host}:8080"
        assert len(hosts) > 1


@run
async def test_a_topic_without_a_broker_is_looked_up_again() -> None:
    """C++ closes the whole connection after ServiceNotReady, and tries only the look-up again after MetadataError."""
    async with cluster(2) as world:
        owner, other = await made(world)
        client = await producing(owner)
        send(client, 0)
        await client.hear(BaseCommand.SEND_RECEIPT)
        world.ledgers.automatic = False
        send(client, 1)
        await world.ask_to_hand_over(T, other)  # which waits for the entry
        await world.until(lambda: not owner.seat.serves(NAMESPACE, T))
        found = await look_up(owner)
        assert found.response == CommandLookupTopicResponse.Failed
        assert found.error == ServerError.MetadataError
        assert (await look_up_over_http(owner)).status_code == 503
        assert (await look_up(other)).brokerServiceUrl == f"pulsar://{owner.host}:6650"
        world.ledgers.automatic = True
        world.ledgers.write()
        await world.settle()
        assert (await look_up(owner)).brokerServiceUrl == f"pulsar://{other.host}:6650"


@run
async def test_a_pattern_is_looked_up_at_any_broker() -> None:
    async with cluster(2) as world:
        for asked in world.brokers:
            found = await look_up(asked, "persistent://public/default/.*")
            assert found.response == CommandLookupTopicResponse.Connect


@run
async def test_producers_and_consumers_at_the_wrong_broker_have_to_look_the_topic_up_again() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        client = await other.client()
        produce = CommandProducer(topic=T, producer_id=1, request_id=2)
        assert await refused(client, produce) == ServerError.ServiceNotReady
        subscribe = CommandSubscribe(
            topic=T, subscription="s", subType=CommandSubscribe.Shared, consumer_id=1, request_id=3
        )
        assert await refused(client, subscribe) == ServerError.ServiceNotReady
        await producing(owner)
        await consuming(owner)


@run
async def test_any_broker_says_how_many_partitions_there_are() -> None:
    async with cluster(2) as world:
        await world.brokers[0].make(T, 3)
        for asked in world.brokers:
            client = await asked.client()
            for topic, count in ((T, 3), (f"{T}-partition-0", 0), (f"{T}-partition-1", 0)):
                command = CommandPartitionedTopicMetadata(topic=topic, request_id=6)
                found = await client.ask(command, BaseCommand.PARTITIONED_METADATA_RESPONSE)
                assert (found.partitions, found.error) == (count, 0), found


@run
async def test_a_producer_is_closed_behind_the_receipts_of_what_it_has_sent() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        client = await producing(owner)
        send(client, 0)
        await client.hear(BaseCommand.SEND_RECEIPT)
        world.ledgers.automatic = False
        send(client, 1)
        await world.ask_to_hand_over(T, other)
        await world.until(lambda: not owner.seat.serves(NAMESPACE, T))
        send(client, 2)  # which is refused, and sent again by the client to the next owner
        await world.turn()
        assert client.received == []
        world.ledgers.automatic = True
        world.ledgers.write()
        await world.until(lambda: len(client.received) == 2)
        kinds = [kind for kind, _, _ in client.received]
        assert kinds == [BaseCommand.SEND_RECEIPT, BaseCommand.CLOSE_PRODUCER]
        assert client.received[0][1].sequence_id == 1
        await world.settle()
        send(client, 3)  # the client has not heard of it yet
        again = await producing(other)
        for sequence_id in (2, 3):
            send(again, sequence_id)
            await again.hear(BaseCommand.SEND_RECEIPT)
        log = other.topic(T).partition(0).log
        entries = [entry for offset in range(4) for entry in await log.read(offset, 1)]
        assert [bytes(entry.payload)[-1:] for entry in entries] == [b"0", b"1", b"2", b"3"]
        assert log.next_offset == 4


@run
async def test_a_consumer_goes_on_at_the_next_owner_behind_what_it_has_acknowledged() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        producer, consumer = await producing(owner), await consuming(owner)
        for sequence_id in range(3):
            send(producer, sequence_id)
            await producer.hear(BaseCommand.SEND_RECEIPT)
            message = await consumer.hear(BaseCommand.MESSAGE)
            if sequence_id < 2:
                acknowledge(consumer, message.message_id)
        await world.ask_to_hand_over(T, other)
        await world.work()  # no time passes in which positions are stored anyway
        await world.until(lambda: other.seat.serves(NAMESPACE, T))
        await consumer.hear(BaseCommand.CLOSE_CONSUMER)
        again = await consuming(other)
        message, entry = await again.hear_entry(BaseCommand.MESSAGE)
        assert entry[-1:] == b"2"
        assert other.broker.cursors.holders(T, 0) == ["s"]
        acknowledge(again, message.message_id)
        await world.turn()
        await world.hand_over(T, owner)
        back = await consuming(owner)
        send(await producing(owner), 3)
        _, entry = await back.hear_entry(BaseCommand.MESSAGE)
        assert entry[-1:] == b"3"


@run
async def test_a_broker_that_has_lost_a_bundle_stores_no_positions_of_it() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        producer, consumer = await producing(owner), await consuming(owner)
        send(producer, 0)
        message = await consumer.hear(BaseCommand.MESSAGE)
        acknowledge(consumer, message.message_id)
        await world.end_session(owner)
        await consumer.hear(BaseCommand.CLOSE_CONSUMER)
        await producer.hear(BaseCommand.CLOSE_PRODUCER)
        await world.settle()
        assert owner.broker.subscriptions._open == {}
        assert owner.broker.producers._of == {}
        again = await consuming(other)
        _, entry = await again.hear_entry(BaseCommand.MESSAGE)
        assert entry[-1:] == b"0", "it comes again"


@run
async def test_clients_that_were_on_their_way_in_when_a_bundle_goes_are_sent_away() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        first = owner.topic(T).partition(0)
        clients = [await owner.client() for _ in range(3)]
        owner.session.answers.clear()
        modes = (ProducerAccessMode.Shared, ProducerAccessMode.Exclusive)
        for client, mode in zip(clients, modes, strict=False):  # which ask for the topic's epoch
            client.say(CommandProducer(topic=T, producer_id=1, request_id=2, producer_access_mode=mode))
            await world.turn()
        subscribe = CommandSubscribe(
            topic=T, subscription="s", subType=CommandSubscribe.Shared, consumer_id=1, request_id=3
        )
        clients[-1].say(subscribe)  # whose cursor is stored
        await world.turn()
        await world.ask_to_hand_over(T, other)
        await world.turn()
        owner.session.answers.set()
        for client in clients:
            assert (await client.hear(BaseCommand.ERROR)).error == ServerError.ServiceNotReady
        await world.settle()
        assert first.is_closed
        assert owner.broker.cursors._owners == {}
        assert owner.broker.subscriptions._open == {}
        assert owner.broker.producers._of == {}
        await consuming(other)
        assert other.broker.cursors.holders(T, 0) == ["s"]


@run
async def test_a_volatile_topics_consumer_is_sent_away_if_its_bundle_has_gone_meanwhile() -> None:
    """It waited for messages that another broker handed out."""
    name = T.replace("persistent", "non-persistent")
    async with cluster(2) as world:
        await world.brokers[0].make(name, is_partitioned=False)
        owner, other = world.owner(name), world.other(name)
        partition = owner.topic(name).partition(0)
        client = await owner.client()
        spec = ConsumerSpec("c", SubscriptionType.EXCLUSIVE)
        await world.hand_over(name, other)
        port = ConnectedConsumer(client.session, 1, -1, uses_epochs=False)
        with pytest.raises(NotLeader):
            await owner.broker.subscriptions.subscribe(partition, SubscribeRequest("s", spec), port)
        assert owner.broker.subscriptions.volatile(partition) == []


@run
async def test_a_subscription_that_was_being_made_when_a_bundle_was_lost_has_no_cursor_here() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        client = await owner.client()
        owner.session.answers.clear()
        subscribe = CommandSubscribe(
            topic=T, subscription="s", subType=CommandSubscribe.Shared, consumer_id=1, request_id=3
        )
        client.say(subscribe)
        await world.turn()
        await world.end_session(owner)
        await world.turn()
        owner.session.answers.set()
        assert (await client.hear(BaseCommand.ERROR)).error == ServerError.ServiceNotReady
        await world.settle()
        assert owner.broker.cursors._owners == {}
        assert owner.broker.subscriptions._open == {}
        assert other.seat.serves(NAMESPACE, T)


@run
async def test_an_exclusive_producer_whose_epoch_is_stored_when_a_bundle_goes_is_sent_away() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        client = await owner.client()
        before = await owner.client()
        await before.ask(CommandProducer(topic=T, producer_id=1, request_id=2), BaseCommand.PRODUCER_SUCCESS)
        before.leave()
        await world.turn()
        owner.session.answers.clear()
        client.say(
            CommandProducer(
                topic=T, producer_id=1, request_id=2, producer_access_mode=ProducerAccessMode.Exclusive
            )
        )
        await world.turn()
        await world.ask_to_hand_over(T, other)
        await world.turn()
        owner.session.answers.set()
        assert (await client.hear(BaseCommand.ERROR)).error == ServerError.ServiceNotReady
        await world.settle()


@run
async def test_a_broker_that_was_deposed_stores_no_epoch_of_an_exclusive_producer() -> None:
    """With those of the next owner it would be the same one twice, or lower."""
    async with cluster(2) as world:
        owner, other = await made(world)
        owner.session.is_deaf = True
        await world.end_session(owner)
        await world.until(lambda: other.seat.serves(NAMESPACE, T))
        claim = CommandProducer(
            topic=T, producer_id=1, request_id=2, producer_access_mode=ProducerAccessMode.Exclusive
        )
        first, late = await other.client(), await owner.client()
        await first.ask(claim, BaseCommand.PRODUCER_SUCCESS)
        stored = await world.metadata.scan(EPOCHS_ROOT)
        assert stored
        assert await refused(late, claim) == ServerError.MetadataError
        assert await world.metadata.scan(EPOCHS_ROOT) == stored
        owner.membership.end()


@run
async def test_clients_that_come_while_a_bundle_goes_are_sent_away() -> None:
    async with cluster(2) as world:
        owner, other = await made(world)
        producer = await producing(owner)
        partition = owner.topic(T).partition(0)
        send(producer, 0)
        await producer.hear(BaseCommand.SEND_RECEIPT)
        world.ledgers.automatic = False
        send(producer, 1)
        await world.ask_to_hand_over(T, other)
        await world.until(lambda: not owner.seat.serves(NAMESPACE, T))
        client = await owner.client()
        produce = CommandProducer(topic=T, producer_id=1, request_id=2)
        assert await refused(client, produce) == ServerError.ServiceNotReady
        world.ledgers.automatic = True
        world.ledgers.write()
        await world.settle()
        assert partition.is_closed
