"""SCALABLE_TOPIC_LOOKUP, SCALABLE_TOPIC_CLOSE, SCALABLE_TOPIC_SUBSCRIBE, WATCH_SCALABLE_TOPICS and
WATCH_SCALABLE_TOPICS_CLOSE: what clients of Pulsar 5 (V5) ask about a topic before they use it.

The server has no scalable topics (PIP-460): it refuses names that begin with `topic://`, and clients that want to watch
the scalable topics of a namespace.  V5 clients use other topics as PIP-475 says: the server answers a look-up with a
layout whose segments are the topic's partitions, and tells the client when partitions are added.  It creates a topic
where PARTITIONED_METADATA would.

A stream consumer gets all segments, and then subscribes to each as its one consumer.  So the server refuses a second
one of the same subscription by SUBSCRIBE while the first is there; Apache Pulsar shares segments out among them.  It
refuses a checkpoint consumer of a group.
"""

from functools import partial
from typing import Final

from magnetar.base.names import parse_partition
from magnetar.broker.errors import PolicyViolation, UnknownTopic
from magnetar.protocols.pulsar.errors import server_error
from magnetar.protocols.pulsar.layouts import LayoutWatcher, Send, send_assignment, send_layout
from magnetar.protocols.pulsar.registry import Answer, Command
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandScalableTopicAssignmentUpdate,
    CommandScalableTopicClose,
    CommandScalableTopicLookup,
    CommandScalableTopicSubscribe,
    CommandScalableTopicSubscribeResponse,
    CommandScalableTopicUpdate,
    CommandWatchScalableTopics,
    CommandWatchScalableTopicsClose,
    CommandWatchScalableTopicsUpdate,
)

WATCHED_MAX: Final = 10_000  # layouts of one connection
_SCALABLE: Final = "topic://"


def look_up(session: PulsarSession, command: CommandScalableTopicLookup) -> Answer:
    send = partial(_send_layout, command.session_id)
    return _watch(session, (BaseCommand.SCALABLE_TOPIC_LOOKUP, command.session_id), command.topic, send, send)


async def _send_layout(session_id: int, watcher: LayoutWatcher, count: int) -> None:
    await send_layout(watcher, session_id, count)


def refuse_look_up(command: CommandScalableTopicLookup, error: Exception) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.SCALABLE_TOPIC_UPDATE,
        scalableTopicUpdate=CommandScalableTopicUpdate(
            session_id=command.session_id, error=server_error(error), message=str(error)
        ),
    )


def close(session: PulsarSession, command: CommandScalableTopicClose) -> Answer:
    _forget(session, (BaseCommand.SCALABLE_TOPIC_LOOKUP, command.session_id))
    return None


def subscribe(session: PulsarSession, command: CommandScalableTopicSubscribe) -> Answer:
    if command.consumer_type != CommandScalableTopicSubscribe.STREAM:
        raise PolicyViolation(
            "checkpoint consumers of a group want a scalable topic, and there are none here"
        )
    key = (BaseCommand.SCALABLE_TOPIC_SUBSCRIBE, command.consumer_id)
    first = partial(_send_first, command.request_id)
    return _watch(session, key, command.topic, first, partial(_send_update, command.consumer_id))


async def _send_first(request_id: int, watcher: LayoutWatcher, count: int) -> None:
    front = CommandScalableTopicSubscribeResponse(request_id=request_id)
    await send_assignment(watcher, BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE, front, count)


async def _send_update(consumer_id: int, watcher: LayoutWatcher, count: int) -> None:
    front = CommandScalableTopicAssignmentUpdate(consumer_id=consumer_id)
    await send_assignment(watcher, BaseCommand.SCALABLE_TOPIC_ASSIGNMENT_UPDATE, front, count)


def refuse_subscribe(command: CommandScalableTopicSubscribe, error: Exception) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
        scalableTopicSubscribeResponse=CommandScalableTopicSubscribeResponse(
            request_id=command.request_id, error=server_error(error), message=str(error)
        ),
    )


def watch_topics(session: PulsarSession, command: CommandWatchScalableTopics) -> Answer:
    return BaseCommand(
        type=BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE,
        watchScalableTopicsUpdate=CommandWatchScalableTopicsUpdate(
            watch_id=command.watch_id,
            error=server_error(PolicyViolation()),
            message="there are no scalable topics here: name the topic instead of its namespace",
        ),
    )


def stop_watching(session: PulsarSession, command: CommandWatchScalableTopicsClose) -> Answer:
    return None


def _watch(session: PulsarSession, key: tuple[int, int], topic: str, first: Send, then: Send) -> Answer:
    _forget(session, key)
    if topic.startswith(_SCALABLE):
        raise UnknownTopic(f"Scalable topic not found: {topic[:200]}")
    if not parse_partition(topic)[0].persistent:
        raise PolicyViolation("V5 clients cannot use non-persistent topics")
    if len(session.layouts) >= WATCHED_MAX:
        raise PolicyViolation(f"{WATCHED_MAX} layouts are watched by this connection; no more are allowed")
    watcher = session.layouts[key] = LayoutWatcher(session, topic, then)
    return _answer(session, key, watcher, first)


async def _answer(session: PulsarSession, key: tuple[int, int], watcher: LayoutWatcher, first: Send) -> None:
    try:
        await watcher.answer(first)
    except BaseException:
        if session.layouts.get(key) is watcher:
            _forget(session, key)
        raise


def _forget(session: PulsarSession, key: tuple[int, int]) -> None:
    watcher = session.layouts.pop(key, None)
    if watcher is not None:
        watcher.connection_lost()


COMMANDS = (
    Command(BaseCommand.SCALABLE_TOPIC_LOOKUP, look_up, refuse_look_up, right="Lookup"),
    Command(BaseCommand.SCALABLE_TOPIC_CLOSE, close),
    Command(BaseCommand.SCALABLE_TOPIC_SUBSCRIBE, subscribe, refuse_subscribe, right="subscribe"),
    Command(BaseCommand.WATCH_SCALABLE_TOPICS, watch_topics),
    Command(BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE, stop_watching),
)
