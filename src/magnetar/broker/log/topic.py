"""The topic of a partition (`topics/topic.py`), as the log and the users of a partition use it."""

from typing import Protocol

from magnetar.base.names import TopicName
from magnetar.broker.policy.model import TopicConfig


class PartitionTopic(Protocol):
    """See the module's text."""

    @property
    def name(self) -> TopicName: ...
    @property
    def config(self) -> TopicConfig: ...
    @property
    def is_deleted(self) -> bool: ...
    @property
    def is_partitioned(self) -> bool:
        """Whether Pulsar's clients use its partitions, which have names of their own."""
        ...

    def check_exists(self) -> None:
        """Raise UnknownTopic if it was deleted."""
        ...

    def is_in_transaction(
        self, producer_id: int, epoch: int, index: int, transactional_id: str | None
    ) -> bool:
        """Whether partition `index` is part of the producer's open transaction, and that belongs to
        `transactional_id`.
        """
        ...
