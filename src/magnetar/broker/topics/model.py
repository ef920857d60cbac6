"""What a request to create a topic says: values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.base.names import TopicName


@dataclass(slots=True)
class NewTopic:
    """The arguments of `create`. -1 means the broker's default; `replicas` assigns by hand."""

    name: TopicName
    partition_count: int = -1
    replication_factor: int = -1
    replicas: list[list[int]] | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)
    is_partitioned: bool = True  # false: Pulsar's non-partitioned topic, which has exactly one partition
