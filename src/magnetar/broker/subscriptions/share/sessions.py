"""Share sessions (KIP-932): which partitions each share consumer fetches, from its first request to its last.

A session's epoch counts its requests, so the server notices a lost one.  At each of its partitions, the consumer is a
consumer of the subscription with its group's name.  When the session ends, its records go to the group's other
consumers.  It ends when the consumer says so or begins another session, or when the connection is lost.  As in Kafka,
the consumer need not be a member of its group.

A session belongs to its principal: member ids of two principals have nothing to do with each other.  Otherwise a
principal that may read with a group, but not the topics of its consumers, could continue their sessions, which name
these topics.

A partition that the consumer drops stays in the session until all its records are acknowledged, or their locks end.

The number of sessions is limited, and all clients share it.  A client has one session on its connection, so one
connection gets only a small part.  Otherwise a few requests of one tenant would keep out the consumers of all others.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import StorageError
from magnetar.base.tasks import Tasks, settle
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.model import Principal
from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.model import (
    Acknowledged,
    ConsumerSpec,
    InitialPosition,
    ShareRules,
    SubscribeRequest,
    SubscriptionType,
    Within,
)
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.subscriptions.share.consumer import Burial, ShareConsumer, SharePort, left
from magnetar.broker.subscriptions.share.dead_letters import DeadLetter, DeadLetters
from magnetar.broker.subscriptions.share.errors import (
    InvalidRecordState,
    InvalidShareRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from magnetar.broker.subscriptions.subscription import Subscription

log: Final = logging.getLogger(__name__)

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
PLACES_MAX: Final = 1 << 18  # partitions of all sessions
OF_CONNECTION_MAX: Final = 16  # sessions
PLACES_OF_CONNECTION_MAX: Final = PLACES_MAX // 4
_EPOCH_MAX: Final = (1 << 31) - 1

Key = tuple[bytes, int]  # topic id, partition


class SharePlace:
    """One partition of a session."""

    __slots__ = ("consumer", "is_wanted", "session")

    def __init__(self, session: "ShareSession") -> None:
        self.session = session
        self.is_wanted = True
        self.consumer: ShareConsumer | None = None  # None until the first fetch

    def arrived(self) -> None:
        """Records have come for its consumer."""
        self.session.arrived()

    @property
    def is_connected(self) -> bool:
        return self.consumer is not None and self.consumer.is_connected


class ShareSession:
    """The session of one share consumer of `owner`; `places` are in the order of their turns."""

    def __init__(self, group_id: str, member_id: str, owner: Principal, connection_id: int) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.key = group_id, member_id, owner
        self.connection_id = connection_id
        self.epoch = INITIAL_EPOCH + 1  # what the next request must carry
        self.places: dict[Key, SharePlace] = {}
        self.is_closed = False
        # Of fetches, which may come over several connections.
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def wanted(self) -> list[Key]:
        return [key for key, place in self.places.items() if place.is_wanted]

    def arrived(self) -> None:
        """Records have come, or something has changed: fetches that wait go on."""
        for one in self._waiting:
            settle(one, None)

    def something(self) -> "asyncio.Future[None]":
        """A future that is done when records have come for the session, or it has ended."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            future.set_result(None)
        else:
            self._waiting.add(future)
            future.add_done_callback(self._waiting.discard)
        return future

    def rotate(self, key: Key) -> None:
        """A partition has had its turn."""
        place = self.places.pop(key, None)
        if place is not None:
            self.places[key] = place


class ShareSessions:
    """See the module's text.  `rules` returns the rules for a group's records."""

    def __init__(
        self,
        clock: Clock,
        subscriptions: Subscriptions,
        dead_letters: DeadLetters,
        rules: Callable[[str], ShareRules],
        sessions_max: int,
    ) -> None:
        self._clock = clock
        self._subscriptions = subscriptions
        self._dead_letters = dead_letters
        self._tasks = Tasks(log)
        self.rules = rules
        self._sessions_max = sessions_max
        self._sessions: dict[tuple[str, str, Principal], ShareSession] = {}
        self._of_connection: dict[int, set[ShareSession]] = {}
        self._place_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    # --- sessions ----------------------------------------------------------------------------------------------------

    def begin(
        self, group_id: str, member_id: str, owner: Principal, connection_id: int, wanted: Iterable[Key]
    ) -> ShareSession:
        """A consumer's first fetch, or its first one after an error: the records that it holds go back.

        Raises:
            ShareSessionLimitReached
        """
        session = ShareSession(group_id, member_id, owner, connection_id)
        before = self._sessions.get(session.key)
        if before is None and len(self._sessions) >= self._sessions_max:
            raise ShareSessionLimitReached(f"{self._sessions_max} share consumers fetch already")
        if len(self._of_connection.get(connection_id, set()) - {before}) >= OF_CONNECTION_MAX:
            raise ShareSessionLimitReached(
                f"{OF_CONNECTION_MAX} share consumers fetch over this connection already"
            )
        if before is not None:
            self._take_over(before, session)
        self._sessions[session.key] = session
        self._of_connection.setdefault(connection_id, set()).add(session)
        for place in session.places.values():
            place.is_wanted = False
        self._want(session, wanted)
        self._drop_unwanted(session)
        return session

    def _take_over(self, before: ShareSession, session: ShareSession) -> None:
        """Keep the consumer at its partitions, because the counts of deliveries would be forgotten with it."""
        self._forget(before)
        session.places, before.places = before.places, {}
        for place in session.places.values():
            place.session = session
            if place.consumer is not None:
                place.consumer.rest()
                place.consumer.release_all()

    def go_on(
        self,
        group_id: str,
        member_id: str,
        owner: Principal,
        epoch: int,
        wanted: Iterable[Key] = (),
        forgotten: Iterable[Key] = (),
    ) -> ShareSession:
        """The session of a later request.

        Raises:
            ShareSessionNotFound, InvalidShareSessionEpoch
        """
        session = self._sessions.get((group_id, member_id, owner))
        if session is None:
            raise ShareSessionNotFound("There is no such share session.")
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise InvalidShareSessionEpoch(f"The session's epoch is {session.epoch}.")
        session.epoch = epoch + 1 if epoch < _EPOCH_MAX else INITIAL_EPOCH + 1
        self._want(session, wanted)
        for key in forgotten:
            if (place := session.places.get(key)) is not None:
                place.is_wanted = False
        self._drop_unwanted(session)
        return session

    def _want(self, session: ShareSession, wanted: Iterable[Key]) -> None:
        beside = sum(len(one.places) for one in self._of_connection[session.connection_id] - {session})
        for key in wanted:
            place = session.places.get(key)
            if place is not None:
                place.is_wanted = True
            elif self._place_count >= PLACES_MAX:
                raise ShareSessionLimitReached(f"{PLACES_MAX} partitions are fetched of already")
            elif beside + len(session.places) >= PLACES_OF_CONNECTION_MAX:
                raise ShareSessionLimitReached(
                    f"{PLACES_OF_CONNECTION_MAX} partitions are fetched of over this connection already"
                )
            else:
                session.places[key] = SharePlace(session)
                self._place_count += 1

    def _drop_unwanted(self, session: ShareSession) -> None:
        """Leave partitions that the consumer has dropped, and of which it holds no records."""
        unwanted = [(key, place) for key, place in session.places.items() if not place.is_wanted]
        for key, place in unwanted:
            self._drop_if_done(session, key, place)

    def _drop_if_done(self, session: ShareSession, key: Key, place: SharePlace) -> None:
        if not place.is_wanted and (place.consumer is None or not place.consumer.holds_any):
            del session.places[key]
            self._leave(place)

    def _leave(self, place: SharePlace) -> None:
        self._place_count -= 1
        # They know each other: nothing of the consumer is to wait for the collector.
        consumer, place.consumer = place.consumer, None
        if consumer is not None:
            self._disconnect(consumer)

    def _disconnect(self, consumer: ShareConsumer) -> None:
        consumer.stop()
        self._subscriptions.leave_later(consumer)

    def send_away(self, consumer: ShareConsumer) -> None:
        """End what a consumer does at its partition: the records that it holds go back.  The session goes on, and may
        connect to the partition again.
        """
        self._disconnect(consumer)
        consumer.port.closed()

    def _forget(self, session: ShareSession) -> None:
        session.is_closed = True
        del self._sessions[session.key]
        of_connection = self._of_connection[session.connection_id]
        of_connection.discard(session)
        if not of_connection:
            del self._of_connection[session.connection_id]
        session.arrived()

    def end(self, session: ShareSession) -> None:
        """End the session: the records that the consumer holds go back."""
        if session.is_closed:
            return
        self._forget(session)
        places, session.places = session.places, {}
        for place in places.values():
            self._leave(place)

    def connection_lost(self, connection_id: int) -> None:
        """End the sessions whose last fetch came over this connection."""
        for session in list(self._of_connection.get(connection_id, ())):
            self.end(session)

    # --- partitions --------------------------------------------------------------------------------------------------

    async def connect(
        self, session: ShareSession, key: Key, partition: Partition, address: str, within: Within
    ) -> ShareConsumer | None:
        """The session's consumer at a partition; None when the session has ended meanwhile.

        A new subscription is stored `within` this context.

        Raises:
            ConsumerBusy, SubscriptionNotAllowed: Pulsar consumers have the subscription for themselves.
            InvalidShareRequest: the topic stores nothing.
            MetadataError, StorageError, EntryCorrupt
        """
        place = session.places.get(key)
        if place is None:
            return None
        if place.is_connected:
            return place.consumer
        if not partition.topic.name.persistent:
            raise InvalidShareRequest("The topic stores nothing.")
        rules = self.rules(session.group_id)
        wanted = SubscribeRequest(
            session.group_id,
            ConsumerSpec(
                session.member_id,
                SubscriptionType.SHARED,
                address=address,
                client_version="Kafka share consumer",
                identity=session.key,
            ),
            initial_position=InitialPosition.EARLIEST if rules.begins_at_start else InitialPosition.LATEST,
            rollback_s=rules.rollback_s,
            holds_data=False,
        )
        port = SharePort(
            self._clock,
            partial(self.rules, session.group_id),
            place.arrived,
            partial(self._bury, session.group_id),
        )
        member = await self._subscriptions.subscribe(partition, wanted, port, ShareConsumer, within=within)
        assert isinstance(member, ShareConsumer), member
        if session.is_closed or session.places.get(key) is not place or place.is_connected:
            await self._subscriptions.leave(member)
            return place.consumer if place.is_connected else None
        if place.consumer is not None:
            place.consumer.stop()
        place.consumer = member
        return member

    async def acknowledge(self, session: ShareSession, key: Key, said: Sequence[Acknowledged]) -> None:
        """Acknowledge records; returns when that is durable.

        Raises:
            InvalidRecordState: nothing has changed.
            MetadataError: the acknowledgement is valid, but could not be stored yet.
        """
        place = session.places.get(key)
        if place is None or (consumer := place.consumer) is None or not consumer.acknowledge(said):
            raise InvalidRecordState("The consumer does not have all of these records.")
        subscription = consumer.subscription
        if burials := consumer.burials:
            consumer.burials = []
            await asyncio.wait(burials)  # they go on if this client is gone
        if session.places.get(key) is place:  # not all of them: a request may acknowledge at each
            self._drop_if_done(session, key, place)
        assert isinstance(subscription, Subscription), subscription
        await self._subscriptions.store(subscription)

    def _bury(self, group_id: str, consumer: ShareConsumer, units: Sequence[Unit], cause: str) -> Burial:
        return self._tasks.spawn("write dead letters", self._buried(group_id, consumer, units, cause))

    async def _buried(
        self, group_id: str, consumer: ShareConsumer, units: Sequence[Unit], cause: str
    ) -> None:
        partition = consumer.subscription.partition
        letters = [DeadLetter(left(unit), unit.redelivery_count + 1, cause) for unit in units]
        try:
            await self._dead_letters.write(group_id, self.rules(group_id), partition, letters)
        except StorageError as error:
            log.warning("group %s keeps records whose dead letters were not stored: %s", group_id, error)
            consumer.not_buried(units)
        else:
            consumer.buried([limits for letter in letters for limits in letter.ranges], units)

    async def close(self) -> None:
        """Stop writing dead letters; records without one are delivered again after the next start."""
        self._tasks.cancel()
        await self._tasks.ended()
