"""The smallest commands of each kind, and the rights that they ask for.

`test_pulsar_denied.py` asks them of a door without sockets, `tests/integration/matrix` of a real server.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from magnetar.broker.security.model import Operation, ResourceType
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

TOPIC: Final = "persistent://public/default/t"
STRING: Final = pb.Schema(name="String", schema_data=b"", type=pb.Schema.String)
SHARED: Final = pb.CommandSubscribe.Shared

_CONNECTION: Final = "it is of the connection itself"
_PRODUCER: Final = "it is of a producer, which PRODUCER has asked for"
_CONSUMER: Final = "it is of a consumer, which SUBSCRIBE has asked for"
_TRANSACTION: Final = "a transaction is its client's own"
_REFUSED: Final = "it is refused to every client"
ASKS_NOTHING: Final[Mapping[int, str]] = MappingProxyType(
    {
        BaseCommand.CONNECT: _CONNECTION,
        BaseCommand.PING: _CONNECTION,
        BaseCommand.PONG: _CONNECTION,
        BaseCommand.AUTH_RESPONSE: _CONNECTION,
        BaseCommand.SEND: _PRODUCER,
        BaseCommand.CLOSE_PRODUCER: _PRODUCER,
        BaseCommand.FLOW: _CONSUMER,
        BaseCommand.ACK: _CONSUMER,
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: _CONSUMER,
        BaseCommand.SEEK: _CONSUMER,
        BaseCommand.GET_LAST_MESSAGE_ID: _CONSUMER,
        BaseCommand.CONSUMER_STATS: _CONSUMER,
        BaseCommand.UNSUBSCRIBE: _CONSUMER,
        BaseCommand.CLOSE_CONSUMER: _CONSUMER,
        BaseCommand.WATCH_TOPIC_LIST_CLOSE: "it ends what WATCH_TOPIC_LIST has asked for",
        BaseCommand.TC_CLIENT_CONNECT_REQUEST: _TRANSACTION,
        BaseCommand.NEW_TXN: _TRANSACTION,
        BaseCommand.END_TXN: _TRANSACTION,
        BaseCommand.WATCH_TC_ASSIGNMENTS: _TRANSACTION,
        BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE: _TRANSACTION,
        BaseCommand.SCALABLE_TOPIC_CLOSE: "it ends what SCALABLE_TOPIC_LOOKUP has asked for",
        BaseCommand.WATCH_SCALABLE_TOPICS: _REFUSED,
        BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: _REFUSED,
        BaseCommand.END_TXN_ON_PARTITION: _REFUSED,
        BaseCommand.END_TXN_ON_SUBSCRIPTION: _REFUSED,
    }
)

# What a denied client gets, in which answer.
DENIED: Final[Mapping[int, tuple[int, str]]] = MappingProxyType(
    {
        BaseCommand.PRODUCER: (BaseCommand.ERROR, "Produce"),
        BaseCommand.ADD_PARTITION_TO_TXN: (BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE, "Produce"),
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN: (BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, "Consume"),
        BaseCommand.SUBSCRIBE: (BaseCommand.ERROR, "subscribe"),
        BaseCommand.LOOKUP: (BaseCommand.LOOKUP_RESPONSE, "Lookup"),
        BaseCommand.PARTITIONED_METADATA: (
            BaseCommand.PARTITIONED_METADATA_RESPONSE,
            "Get Partition Metadata",
        ),
        BaseCommand.SCALABLE_TOPIC_LOOKUP: (BaseCommand.SCALABLE_TOPIC_UPDATE, "Lookup"),
        BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: (BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE, "subscribe"),
        BaseCommand.GET_TOPICS_OF_NAMESPACE: (BaseCommand.ERROR, "GetTopicsOfNamespace"),
        BaseCommand.WATCH_TOPIC_LIST: (BaseCommand.ERROR, "WatchTopicList"),
        BaseCommand.GET_SCHEMA: (BaseCommand.GET_SCHEMA_RESPONSE, "GetSchema"),
        BaseCommand.GET_OR_CREATE_SCHEMA: (BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, "GetOrCreateSchema"),
    }
)

Right = tuple[Operation, ResourceType]


class Form(NamedTuple):
    """A command that asks: without any of `rights` it is refused, without those that it `hides` its answer has less."""

    body: Any
    rights: frozenset[Right]
    hides: frozenset[Right] = frozenset()


_READS: Final = (Operation.READ, ResourceType.SUBSCRIPTION)
_WRITES: Final = (Operation.WRITE, ResourceType.TOPIC)
_SEES: Final = (Operation.DESCRIBE, ResourceType.TOPIC)
_LISTS: Final = (Operation.DESCRIBE, ResourceType.NAMESPACE)


def _listing(body: Any) -> Form:
    return Form(body, frozenset({_LISTS}), frozenset({_SEES}))


def _asking(right: Right, *bodies: Any) -> list[Form]:
    return [Form(body, frozenset({right})) for body in bodies]


def asking(topic: str) -> dict[int, list[Form]]:
    """Commands that ask, about a topic and its namespace, of each kind in each of its forms."""
    namespace = "/".join(topic.removeprefix("persistent://").split("/")[:2])
    return {
        BaseCommand.PRODUCER: [
            *_asking(
                _WRITES,
                pb.CommandProducer(topic=topic, producer_id=7, request_id=1),
                pb.CommandProducer(topic=topic, producer_id=7, request_id=1, schema=STRING),
            ),
            Form(
                pb.CommandProducer(
                    topic=topic, producer_id=7, request_id=1, initial_subscription_name="kept"
                ),
                frozenset({_WRITES, _READS}),
            ),
        ],
        BaseCommand.SUBSCRIBE: _asking(
            _READS,
            *(
                pb.CommandSubscribe(
                    topic=topic, subscription=name, subType=SHARED, consumer_id=7, request_id=1, **fields
                )
                for name in ("s", "new")
                for fields in ({}, {"schema": STRING}, {"durable": False})
            ),
        ),
        BaseCommand.LOOKUP: [
            *_asking(_SEES, pb.CommandLookupTopic(topic=topic, request_id=1)),
            *_asking(_LISTS, pb.CommandLookupTopic(topic=f"persistent://{namespace}/t.*", request_id=1)),
        ],
        BaseCommand.PARTITIONED_METADATA: _asking(
            _SEES,
            pb.CommandPartitionedTopicMetadata(topic=topic, request_id=1),
            pb.CommandPartitionedTopicMetadata(
                topic=topic, request_id=1, metadata_auto_creation_enabled=False
            ),
        ),
        BaseCommand.SCALABLE_TOPIC_LOOKUP: _asking(
            _SEES, pb.CommandScalableTopicLookup(session_id=1, topic=topic)
        ),
        BaseCommand.SCALABLE_TOPIC_SUBSCRIBE: _asking(
            _SEES,
            pb.CommandScalableTopicSubscribe(
                request_id=1,
                topic=topic,
                subscription="s",
                consumer_name="c",
                consumer_id=7,
                consumer_type=pb.CommandScalableTopicSubscribe.STREAM,
            ),
        ),
        BaseCommand.GET_TOPICS_OF_NAMESPACE: [
            _listing(pb.CommandGetTopicsOfNamespace(namespace=namespace, request_id=1, mode=mode))
            for mode in ("PERSISTENT", "NON_PERSISTENT", "ALL")
        ],
        BaseCommand.WATCH_TOPIC_LIST: [
            _listing(
                pb.CommandWatchTopicList(
                    namespace=namespace, watcher_id=7, request_id=1, topics_pattern=f"{namespace}/.*"
                )
            )
        ],
        BaseCommand.GET_SCHEMA: _asking(
            _SEES,
            pb.CommandGetSchema(topic=topic, request_id=1),
            pb.CommandGetSchema(topic=topic, request_id=1, schema_version=b""),
            pb.CommandGetSchema(topic=topic, request_id=1, schema_version=bytes(8)),
        ),
        BaseCommand.ADD_PARTITION_TO_TXN: _asking(
            _WRITES, pb.CommandAddPartitionToTxn(request_id=1, partitions=[topic])
        ),
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN: _asking(
            _READS,
            pb.CommandAddSubscriptionToTxn(
                request_id=1, subscription=[pb.Subscription(topic=topic, subscription="s")]
            ),
        ),
        BaseCommand.GET_OR_CREATE_SCHEMA: _asking(
            _WRITES, pb.CommandGetOrCreateSchema(topic=topic, request_id=1, schema=STRING)
        ),
    }


def not_asking() -> dict[int, Any]:
    """Commands that ask nothing, for producer, consumer and watcher 1."""
    return {
        BaseCommand.CONNECT: pb.CommandConnect(client_version="test", protocol_version=21),
        BaseCommand.PING: pb.CommandPing(),
        BaseCommand.PONG: pb.CommandPong(),
        BaseCommand.AUTH_RESPONSE: pb.CommandAuthResponse(),
        BaseCommand.SEND: pb.CommandSend(producer_id=1, sequence_id=0),
        BaseCommand.CLOSE_PRODUCER: pb.CommandCloseProducer(producer_id=1, request_id=1),
        BaseCommand.FLOW: pb.CommandFlow(consumer_id=1, messagePermits=10),
        BaseCommand.ACK: pb.CommandAck(
            consumer_id=1,
            ack_type=pb.CommandAck.Individual,
            message_id=[pb.MessageIdData(ledgerId=0, entryId=0)],
            request_id=1,
        ),
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: pb.CommandRedeliverUnacknowledgedMessages(
            consumer_id=1
        ),
        BaseCommand.SEEK: pb.CommandSeek(consumer_id=1, request_id=1, message_publish_time=1),
        BaseCommand.GET_LAST_MESSAGE_ID: pb.CommandGetLastMessageId(consumer_id=1, request_id=1),
        BaseCommand.CONSUMER_STATS: pb.CommandConsumerStats(consumer_id=1, request_id=1),
        BaseCommand.UNSUBSCRIBE: pb.CommandUnsubscribe(consumer_id=1, request_id=1),
        BaseCommand.CLOSE_CONSUMER: pb.CommandCloseConsumer(consumer_id=1, request_id=1),
        BaseCommand.WATCH_TOPIC_LIST_CLOSE: pb.CommandWatchTopicListClose(watcher_id=1, request_id=1),
        BaseCommand.TC_CLIENT_CONNECT_REQUEST: pb.CommandTcClientConnectRequest(request_id=1, tc_id=0),
        BaseCommand.NEW_TXN: pb.CommandNewTxn(request_id=1),
        BaseCommand.END_TXN: pb.CommandEndTxn(request_id=1),
        BaseCommand.WATCH_TC_ASSIGNMENTS: pb.CommandWatchTcAssignments(watch_id=1),
        BaseCommand.WATCH_TC_ASSIGNMENTS_CLOSE: pb.CommandWatchTcAssignmentsClose(watch_id=1),
        BaseCommand.SCALABLE_TOPIC_CLOSE: pb.CommandScalableTopicClose(session_id=1),
        BaseCommand.WATCH_SCALABLE_TOPICS: pb.CommandWatchScalableTopics(
            watch_id=1, namespace="public/default"
        ),
        BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE: pb.CommandWatchScalableTopicsClose(watch_id=1),
        BaseCommand.END_TXN_ON_PARTITION: pb.CommandEndTxnOnPartition(request_id=1, topic=TOPIC),
        BaseCommand.END_TXN_ON_SUBSCRIPTION: pb.CommandEndTxnOnSubscription(
            request_id=1, subscription=pb.Subscription(topic=TOPIC, subscription="s")
        ),
    }
