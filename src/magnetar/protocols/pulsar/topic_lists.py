"""Lists of topics: the hash that shows whether a list has changed, and the clients that watch one."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from crc32c import crc32c

from magnetar.base.clock import TimerHandle
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandWatchTopicUpdate

# Changes are collected for this time, then sent together: a thousand topics created one by one are a few updates.
UPDATE_DELAY_S: Final = 0.05


def topics_hash(names: Iterable[str]) -> str:
    """The hash of a list, independent of its order: CRC32C of the sorted names, little-endian, in hex."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()


class TopicListWatcher:
    """One WATCH_TOPIC_LIST of one connection: it tells its client which topics come and go.  If the client's right is
    revoked, it reports all topics as gone, and then nothing more.

    Raises:
        NamespaceNotAuthorized
    """

    def __init__(
        self,
        session: PulsarSession,
        watcher_id: int,
        namespace: str,
        matches: Callable[[str], bool],
    ) -> None:
        self._session = session
        self.watcher_id = watcher_id
        self._namespace_prefix = f"persistent://{namespace}/"
        self._matches = matches
        self.names: set[str] = set()
        self.names.update(filter(matches, session.cases.pulsar_topics.watch(session.caller, namespace, self)))
        self._told = set(self.names)
        self._timer: TimerHandle | None = None

    @property
    def hash(self) -> str:
        return topics_hash(self.names)

    def changed(self, gone: list[str], came: list[str]) -> None:
        self.names.difference_update(gone)
        for name in came:
            fits = name.startswith(self._namespace_prefix) and self._matches(name)
            if fits and self._session.cases.pulsar_topics.may_describe(self._session.caller, name):
                self.names.add(name)
        if self._timer is None and self.names != self._told:
            self._timer = self._session.service.clock.call_later(UPDATE_DELAY_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        new, deleted = self.names - self._told, self._told - self.names
        self._told = set(self.names)
        if new or deleted:
            update = CommandWatchTopicUpdate(
                watcher_id=self.watcher_id,
                new_topics=sorted(new),
                deleted_topics=sorted(deleted),
                topics_hash=self.hash,
            )
            self._session.send(BaseCommand(type=BaseCommand.WATCH_TOPIC_UPDATE, watchTopicUpdate=update))

    def connection_lost(self) -> None:
        self._session.cases.pulsar_topics.unwatch(self)
        if self._timer is not None:
            self._timer.cancel()

    def close_notice(self) -> Any:
        return None
