"""GET_TOPICS_OF_NAMESPACE, WATCH_TOPIC_LIST, WATCH_TOPIC_LIST_CLOSE: which topics exist, are created and are deleted.

Names are full ones; a partitioned topic is listed by its partitions.  The server does not send a list again that the
client has already, by its hash.  A namespace that does not exist has no topics: after an error Go's client would ask
again until its time is over, and a consumer of a pattern may come before the namespace.
"""

from typing import Final

from magnetar.base.names import InvalidTopicName
from magnetar.broker.policy.errors import NamespaceNotFound
from magnetar.protocols.pulsar.patterns import matcher
from magnetar.protocols.pulsar.registry import Answer, Command
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.protocols.pulsar.topic_lists import TopicListWatcher, topics_hash
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandSuccess,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    CommandWatchTopicListSuccess,
)

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
    try:
        names = session.cases.pulsar_topics.names(
            session.caller, namespace, persistent=_DOMAINS.get(command.mode)
        )
    except NamespaceNotFound:
        names = []
    has_pattern = bool(command.topics_pattern)
    if has_pattern:
        names = list(filter(matcher(command.topics_pattern), names))
    found = topics_hash(names)
    changed = found != command.topics_hash
    return BaseCommand(
        type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        getTopicsOfNamespaceResponse=CommandGetTopicsOfNamespaceResponse(
            request_id=command.request_id,
            topics=names if changed else (),
            filtered=has_pattern,
            topics_hash=found,
            changed=changed,
        ),
    )


def watch_topics(session: PulsarSession, command: CommandWatchTopicList) -> Answer:
    namespace = _namespace(command.namespace)
    watcher = TopicListWatcher(session, command.watcher_id, namespace, matcher(command.topics_pattern))
    earlier = session.watchers.pop(command.watcher_id, None)
    if earlier is not None:
        earlier.connection_lost()
    session.watchers[command.watcher_id] = watcher
    changed = watcher.hash != command.topics_hash
    return BaseCommand(
        type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
        watchTopicListSuccess=CommandWatchTopicListSuccess(
            request_id=command.request_id,
            watcher_id=command.watcher_id,
            topic=sorted(watcher.names) if changed else (),
            topics_hash=watcher.hash,
        ),
    )


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
