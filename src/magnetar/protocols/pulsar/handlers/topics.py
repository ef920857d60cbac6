"""GET_TOPICS_OF_NAMESPACE, WATCH_TOPIC_LIST, WATCH_TOPIC_LIST_CLOSE: which topics exist, are created and are deleted.

Names are full ones; a list has the partitions of a partitioned topic.  If the client's hash shows that it has the list
already, the server does not send it again.  For a namespace that does not exist, the list is empty.  After an error
Go's client would ask again until its time-out, and a consumer of a pattern may come before the namespace.
"""

from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from magnetar.base.names import NON_PERSISTENT, InvalidTopicName
from magnetar.broker.errors import PolicyViolation
from magnetar.broker.policy.errors import NamespaceNotFound
from magnetar.broker.usecases.pulsar_topics import TopicNames
from magnetar.protocols.pulsar.patterns import matcher
from magnetar.protocols.pulsar.registry import Answer, Command
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.protocols.pulsar.topic_lists import NAME_BYTES, TopicListWatcher, send_lists, topics_hash
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandSuccess,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
)

WATCHERS_MAX: Final = 1_000  # lists of one connection: each keeps its names, and hears of every new topic
_DOMAINS: Final = {  # ALL is both
    CommandGetTopicsOfNamespace.PERSISTENT: True,
    CommandGetTopicsOfNamespace.NON_PERSISTENT: False,
}


def _namespace(name: str) -> str:
    if name.count("/") != 1:
        raise InvalidTopicName(f"namespace {name[:200]!r} must be tenant/namespace")
    return name


def get_topics(session: PulsarSession, command: CommandGetTopicsOfNamespace) -> Answer:
    namespace = _namespace(command.namespace)
    matches = matcher(command.topics_pattern) if command.topics_pattern else None
    try:
        listing = session.cases.pulsar_topics.to_list(
            session.caller, namespace, persistent=_DOMAINS.get(command.mode)
        )
    except NamespaceNotFound:
        listing = None
    return _list(session, command, listing, matches)


async def _list(
    session: PulsarSession,
    command: CommandGetTopicsOfNamespace,
    listing: TopicNames | None,
    matches: Callable[[str], bool] | None,
) -> None:
    service = session.service
    async with service.memory.objects(0, 0 if listing is None else listing.count * NAME_BYTES):
        names: list[str] = []
        if listing is not None and not session.is_closed:
            with suppress(NamespaceNotFound):
                names = await listing.all(matches)
        found = await topics_hash(service.lane, _in_order(names))
        changed = found != command.topics_hash
        answer = CommandGetTopicsOfNamespaceResponse(
            request_id=command.request_id, filtered=matches is not None, topics_hash=found, changed=changed
        )
        shown = names if changed else ()
        await send_lists(session, BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, answer, {"topics": shown})


def _in_order(names: list[str]) -> list[str]:
    """The names ascending: those of the second domain come first."""
    begin = bisect_left(names, True, key=lambda name: name.startswith(NON_PERSISTENT))
    return names[begin:] + names[:begin] if begin < len(names) else names


def watch_topics(session: PulsarSession, command: CommandWatchTopicList) -> Answer:
    namespace = _namespace(command.namespace)
    if len(session.watchers) >= WATCHERS_MAX and command.watcher_id not in session.watchers:
        raise PolicyViolation(
            f"{WATCHERS_MAX} lists of topics are watched by this connection; no more are allowed"
        )
    watcher = TopicListWatcher(session, command.watcher_id, namespace, matcher(command.topics_pattern))
    earlier = session.watchers.pop(command.watcher_id, None)
    if earlier is not None:
        earlier.connection_lost()
    session.watchers[command.watcher_id] = watcher
    return watcher.answer(command)


def stop_watching(session: PulsarSession, command: CommandWatchTopicListClose) -> Answer:
    watcher = session.watchers.pop(command.watcher_id, None)
    if watcher is not None:
        watcher.connection_lost()
    return BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=command.request_id))


COMMANDS = (
    Command(BaseCommand.GET_TOPICS_OF_NAMESPACE, get_topics, right="GetTopicsOfNamespace"),
    Command(BaseCommand.WATCH_TOPIC_LIST, watch_topics, right="WatchTopicList"),
    Command(BaseCommand.WATCH_TOPIC_LIST_CLOSE, stop_watching),
)
