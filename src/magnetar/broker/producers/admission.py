"""Which producers may publish to a partition through the Pulsar door: names, access modes, and what replaces what.

A name is that of one connected producer.  A producer may come again, with a higher epoch, under a name that the broker
once made up for it: its connection was lost, and the broker has not noticed.  Then it takes the place of its earlier
connection.  The broker refuses a name that a user has chosen while another producer has it.

Access modes (PIP-68).  Shared producers share.  An exclusive one is alone: it is refused while the topic has another
producer (Exclusive), waits for its turn (WaitForExclusive), or sends all others away (ExclusiveWithFencing).  While
there is an exclusive producer, or one waits, all others are refused, but for those that wait as well.  Each exclusive
producer gets a topic epoch higher than all before it, which is stored before the producer is ready.  A producer that
reconnects with an older epoch is fenced, in every mode, also after it has waited for its turn.  A producer that
reconnects with the current epoch and name is the exclusive producer itself: its earlier connection was lost, and the
broker did not notice.

`PartitionProducers` has the rules and does no I/O: it stores epochs through an `EpochStore`.
"""

import logging
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from magnetar.base.errors import BrokerError
from magnetar.base.tasks import Tasks
from magnetar.broker.errors import NotLeader, UnknownTopic
from magnetar.broker.log.partition import Partition
from magnetar.broker.producers.errors import ProducerBusy, ProducerFenced
from magnetar.broker.producers.model import AccessMode
from magnetar.broker.producers.producer import Producer
from magnetar.broker.topics.roots import EPOCHS_ROOT
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.metadata.store import MetadataStore, Put

_log = logging.getLogger(__name__)


class EpochStore(Protocol):
    """Where one partition's topic epoch is stored."""

    async def load(self) -> int | None:
        """The stored epoch; None if there is none."""
        ...

    async def store(self, epoch: int) -> None: ...


class PartitionProducers:
    """The producers of one partition.  See the module's text."""

    def __init__(self, epochs: EpochStore, *, is_gone: bool = False) -> None:
        self._epochs = epochs
        self._is_gone = is_gone  # the topic was deleted: producers on their way in do not get in
        self._epoch: int | None = None
        self._epoch_is_known = False
        self._by_name: dict[str, Producer] = {}
        self._exclusive: Producer | None = (
            None  # from the moment on when it is decided, before its epoch is stored
        )
        self._waiting: deque[Producer] = deque()
        self._times_closed = 0  # how often all were sent away who may come again
        self._promotions = Tasks(_log)  # of those whose turn has come

    def __iter__(self) -> Iterator[Producer]:
        """The producers that may publish."""
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    async def admit(self, producer: Producer) -> None:
        """Admit `producer`; `is_ready` says whether it may publish, or waits until its port's `ready` is called.

        Raises:
            ProducerBusy, ProducerFenced: it may not.
            UnknownTopic: the topic was deleted.
            NotLeader: all producers were sent away meanwhile, and may come again.
            MetadataError: its epoch cannot be stored now.
        """
        self._check_exists()
        if not self._epoch_is_known:
            stored = await self._epochs.load()
            if not self._epoch_is_known:  # another producer may have been faster, and have a newer one by now
                self._epoch = stored
                self._epoch_is_known = True
        earlier = self._named(producer.name)
        if (
            earlier is not None
            and not self._takes_over(producer, earlier)
            and not self._is_exclusive_itself(producer)
        ):
            # Perhaps it is the same client, and its connection was cut: then its earlier self goes now.
            await earlier.port.is_alive()
        self._check_exists()
        if producer.mode is AccessMode.SHARED:
            if self._exclusive is not None or self._waiting:
                raise ProducerBusy(f"Topic has an existing exclusive producer: {self._holder()}")
            producer.topic_epoch = self._epoch
            self._enter(producer)
            producer.is_ready = True
            return
        # Before any producer is sent away: two that fence each other would do so for ever.
        self._check_epoch(producer)
        if self._is_exclusive_itself(producer):
            self._come_again(producer)
            return
        match producer.mode:
            case AccessMode.EXCLUSIVE:
                if self._exclusive is not None or self._waiting:
                    raise ProducerFenced(f"Topic has an existing exclusive producer: {self._holder()}")
                if self._by_name:
                    raise ProducerFenced("Topic has existing shared producers")
            case AccessMode.WAIT_FOR_EXCLUSIVE:
                if self._exclusive is not None or self._by_name:
                    self._waiting.append(producer)
                    return
            case AccessMode.EXCLUSIVE_WITH_FENCING:
                self._send_all_away(ProducerFenced("Fenced out"))
        self._exclusive = producer
        await self._take(producer)

    def close_all(self) -> None:
        """Disconnect all producers, because the partition is unloaded or deleted.  Their clients may reconnect."""
        self._times_closed += 1
        self._send_all_away()

    async def ended(self) -> None:
        """Return when no producer is being promoted any more."""
        await self._promotions.ended()

    def close_for_good(self) -> None:
        """As `close_all`, and admit no producer any more, because the topic was deleted."""
        self._is_gone = True
        self._send_all_away()

    def _send_all_away(self, fenced: BrokerError | None = None) -> None:
        gone = list(self._by_name.values())
        if self._exclusive is not None and self._exclusive not in gone:
            gone.append(self._exclusive)
        waiting = list(self._waiting)
        self._waiting.clear()
        self._by_name.clear()
        self._exclusive = None
        if fenced is None:
            gone += waiting
        else:
            for producer in waiting:
                producer.port.refused(fenced)
        for producer in gone:
            producer.port.closed()

    def remove(self, producer: Producer) -> None:
        """`producer` leaves, if it is still there; the next waiting one takes its turn."""
        if self._by_name.get(producer.name) is producer:
            del self._by_name[producer.name]
        if producer in self._waiting:
            self._waiting.remove(producer)
        if self._exclusive is producer:
            self._exclusive = None
        if self._exclusive is None and not self._by_name and self._waiting:
            # Decided now, so that no other producer gets in; it is ready when its epoch is stored.
            following = self._exclusive = self._waiting.popleft()
            self._promotions.spawn(f"let {following.name} produce", self._promote(following))

    async def _promote(self, producer: Producer) -> None:
        if self._exclusive is not producer:
            return  # it was sent away, or left, before its turn had begun
        try:
            await self._take(producer)
        except BrokerError as error:
            _log.warning(
                "the server cannot admit the next exclusive producer, whose client may try again: %s", error
            )
            producer.port.refused(error)
            return
        if self._by_name.get(producer.name) is producer:
            producer.port.ready()

    def _holder(self) -> str:
        holder = self._exclusive or self._waiting[0]
        return holder.name

    def _named(self, name: str) -> Producer | None:
        found = self._by_name.get(name)
        if found is None and self._exclusive is not None and self._exclusive.name == name:
            return self._exclusive
        return found

    @staticmethod
    def _takes_over(producer: Producer, earlier: Producer) -> bool:
        return not earlier.is_user_named and not producer.is_user_named and producer.epoch > earlier.epoch

    def _check_epoch(self, producer: Producer) -> None:
        current = -1 if self._epoch is None else self._epoch
        if producer.topic_epoch is not None and producer.topic_epoch < current:
            raise ProducerFenced(
                f"Topic epoch has already moved. Current epoch: {current}, Producer epoch: {producer.topic_epoch}"
            )

    def _is_exclusive_itself(self, producer: Producer) -> bool:
        """Whether `producer` is the exclusive one, reconnected: no other producer has the current epoch."""
        holder = self._exclusive
        return (
            holder is not None
            and holder.is_ready
            and holder.name == producer.name
            and holder.topic_epoch == producer.topic_epoch
            and holder.epoch < producer.epoch
        )

    def _come_again(self, producer: Producer) -> None:
        before = self._exclusive
        assert before is not None
        self._exclusive = self._by_name[producer.name] = producer
        producer.is_ready = True
        before.port.closed()

    async def _take(self, producer: Producer) -> None:
        """Store the epoch of `producer`, which is to be the exclusive one, and admit it."""
        times_closed = self._times_closed
        try:
            self._check_epoch(producer)  # it may have moved while this one waited
            self._check_exists()
            epoch = self._epoch
            # One ahead of what is known here is of an earlier topic of this name.
            if epoch is None or producer.topic_epoch != epoch:
                epoch = 0 if epoch is None else epoch + 1
                await self._epochs.store(epoch)
        except BaseException:
            if self._exclusive is producer:
                self.remove(producer)
            raise
        self._epoch = max(epoch, -1 if self._epoch is None else self._epoch)
        if self._exclusive is not producer:  # sent away, or gone, while that was stored
            self._check_exists()
            if self._times_closed != times_closed:
                raise NotLeader("all producers of the partition were sent away: look it up again")
            raise ProducerFenced("Fenced out")
        producer.topic_epoch = epoch
        self._enter(producer)
        producer.is_ready = True

    def _check_exists(self) -> None:
        if self._is_gone:
            raise UnknownTopic("the topic was deleted")

    def _enter(self, producer: Producer) -> None:
        self._check_exists()
        there = self._by_name.get(producer.name)
        if there is not None:
            if not self._takes_over(producer, there):
                raise ProducerBusy(f"Producer with name '{producer.name}' is already connected to topic")
            there.port.closed()
        self._by_name[producer.name] = producer


class _StoredEpoch:
    """A partition's topic epoch in the metadata store, a decimal number at `/topic-epochs/<log name>`.  A broker that
    has lost the partition stores none, or the epochs of the next owner could go back.
    """

    def __init__(self, metadata: MetadataStore, log: ManagedLedger) -> None:
        self._metadata = metadata
        self._path = EPOCHS_ROOT + log.name
        self._owned = log.owned

    async def load(self) -> int | None:
        stored = await self._metadata.get(self._path)
        return None if stored is None else int(stored.value)

    async def store(self, epoch: int) -> None:
        await self._metadata.commit([*self._owned, Put(self._path, b"%d" % epoch)])


class Producers:
    """The producers of all partitions."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._of: dict[Partition, PartitionProducers] = {}

    def of(self, partition: Partition) -> PartitionProducers:
        found = self._of.get(partition)
        if found is None and partition.topic.is_deleted:
            return PartitionProducers(_StoredEpoch(self._metadata, partition.log), is_gone=True)
        if found is None:
            found = PartitionProducers(_StoredEpoch(self._metadata, partition.log))
            if not partition.is_closed:
                self._of[partition] = found
        return found

    def find(self, partition: Partition) -> PartitionProducers | None:
        """The producers of `partition` if it ever had any; this makes nothing."""
        return self._of.get(partition)

    def close(self, partition: Partition) -> None:
        """Disconnect the partition's producers, because it is unloaded.  They may reconnect."""
        found = self._of.get(partition)
        if found is not None:
            found.close_all()

    def release(self, partition: Partition) -> None:
        """Another broker has the partition, which is closed here: disconnect its producers, and forget them."""
        found = self._of.pop(partition, None)
        if found is not None:
            found.close_all()

    async def ended(self) -> None:
        """Return when no producer is being promoted any more: the server stops, and its clients are gone."""
        for producers in list(self._of.values()):
            await producers.ended()

    def forget(self, topic: Topic) -> None:
        """The topic is deleted, and its producers are disconnected; what is stored of them goes with the topic."""
        for partition in topic.open_partitions:
            found = self._of.pop(partition, None)
            if found is not None:
                found.close_for_good()
