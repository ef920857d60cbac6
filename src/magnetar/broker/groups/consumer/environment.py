"""What the groups with epochs (consumer, share and streams groups) have in common."""

from dataclasses import dataclass

from magnetar.base.clock import Clock
from magnetar.broker.groups.catalogue import TopicCatalogue
from magnetar.broker.groups.consumer.background import Background
from magnetar.broker.groups.memory import MembersMemory
from magnetar.broker.groups.settings import GroupSettings


@dataclass(frozen=True, slots=True)
class Environment:
    """See the module's text."""

    clock: Clock
    settings: GroupSettings
    catalogue: TopicCatalogue
    memory: MembersMemory
    background: Background
