"""What upkeep looks at, topic by topic: the policies, who writes, who reads, and how far each reader is."""

from dataclasses import dataclass

from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.producers.admission import Producers
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.ledger.cursor_store import CursorStore


@dataclass(frozen=True, slots=True)
class TopicsInUse:
    """See the module's text.  `cursors` are also those of subscriptions and groups without clients."""

    topics: TopicRegistry
    namespaces: Namespaces
    producers: Producers
    subscriptions: Subscriptions
    cursors: CursorStore
