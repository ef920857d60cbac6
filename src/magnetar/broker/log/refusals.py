"""Why a partition takes no batches and no messages from producers."""

from typing import Protocol

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import TopicLinked, TopicTerminated
from magnetar.broker.log.topic import PartitionTopic


class RefusingPartition(Protocol):
    """A `Partition`, as this module uses it: at least one of the last three says why it refuses."""

    topic: PartitionTopic
    is_terminated: bool
    is_linked: bool
    refused_with: type[BrokerError] | None


def refusal_of(partition: RefusingPartition) -> BrokerError:
    """The reason; what will not change comes first."""
    if partition.is_terminated:
        return TopicTerminated(f"Topic {partition.topic.name} was already terminated")
    if partition.is_linked:
        return TopicLinked(
            f"Topic {partition.topic.name} is linked, and takes no messages until it is cut loose"
        )
    assert partition.refused_with is not None, partition
    return partition.refused_with("The backlog of the topic is over its quota")
