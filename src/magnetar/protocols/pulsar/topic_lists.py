"""Lists of topics: which of them a pattern means, the hash that tells whether a list has changed, and who watches one.

A pattern is matched against `tenant/namespace/topic`, without the domain and without `-partition-N`.  Patterns come
from clients: they are run by RE2, as in Pulsar, which takes time linear in the name whatever the pattern is.
"""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from crc32c import crc32c

from magnetar.base.errors import BrokerError
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandWatchTopicUpdate

if TYPE_CHECKING:
    from magnetar.base.clock import TimerHandle
    from magnetar.protocols.pulsar.session import PulsarSession

PATTERN_CHARS_MAX: Final = 4096
# Changes are told together after so long: a thousand topics made one by one are a few updates, not a thousand.
UPDATE_DELAY_S: Final = 0.05
_PARTITION: Final = re.compile(r"-partition-[0-9]+$")


class InvalidPattern(BrokerError):
    """The client's pattern cannot be used."""

    code: ClassVar[str] = "INVALID_PATTERN"


def topics_hash(names: Iterable[str]) -> str:
    """What two lists of the same names have in common: CRC32C of the sorted names, its lowest byte first, in hex."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a full topic name, or one of a partition, is meant by `pattern`.

    Raises:
        InvalidPattern: it is too long, or no regular expression that RE2 knows.
    """
    if len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidPattern(
            f"a topics pattern of {len(pattern)} characters: {PATTERN_CHARS_MAX} are allowed"
        )
    before, scheme, after = pattern.partition("://")
    if scheme:
        pattern = ("^" if before.startswith("^") else "") + after
    import re2  # 10 ms that a start need not spend

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPattern(f"topics pattern {pattern!r} cannot be used: {error}") from error

    def matches(name: str) -> bool:
        _, _, short = name.partition("://")
        return compiled.fullmatch(_PARTITION.sub("", short)) is not None

    return matches


class TopicListWatcher:
    """One WATCH_TOPIC_LIST of one connection: tells its client which topics come and go."""

    def __init__(
        self,
        session: "PulsarSession",
        watcher_id: int,
        namespace: str,
        matches: Callable[[str], bool],
        names: Iterable[str],
    ) -> None:
        self._session = session
        self.watcher_id = watcher_id
        self._namespace_prefix = f"persistent://{namespace}/"
        self._matches = matches
        self.names = {name for name in names if matches(name)}
        self._told = set(self.names)
        self._timer: TimerHandle | None = None
        session.broker.topics.observers.add(self._changed)

    @property
    def hash(self) -> str:
        return topics_hash(self.names)

    def _changed(self, gone: list[str], came: list[str]) -> None:
        self.names.difference_update(gone)
        for name in came:
            if name.startswith(self._namespace_prefix) and self._matches(name):
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
        self._session.broker.topics.observers.discard(self._changed)
        if self._timer is not None:
            self._timer.cancel()

    def close_notice(self) -> Any:
        return None
