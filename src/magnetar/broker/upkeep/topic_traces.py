"""What the broker keeps of a topic besides its record and its logs, and under its name: gone with the topic.

Policies, schemas, the pipelines of its replicators and its link go in the transaction that deletes the topic.  What
memory has goes when that is durable, before a client can create a topic of the same name.
"""

from collections.abc import Iterator

from magnetar.broker.jobs.links import Links
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.cursor_store import CursorStore
from magnetar.metadata.store import Delete, Put


class TopicTraces:
    """See the module's text."""

    def __init__(
        self,
        namespaces: Namespaces,
        schemas: SchemaRegistry,
        kafka_topics: KafkaTopics,
        cursors: CursorStore,
        pipelines: Pipelines,
        links: Links,
    ) -> None:
        self._namespaces = namespaces
        self._schemas = schemas
        self._kafka_topics = kafka_topics
        self._cursors = cursors
        self._pipelines = pipelines
        self._links = links

    def deletion_of(self, topic: Topic) -> list[Put | Delete]:
        """What belongs into the transaction that deletes the topic; `forget` is called once that is durable."""
        return [
            *self._namespaces.deletion_of(topic.name),
            *self._schemas.deletion_of(topic.name),
            *self._pipelines.deletion_of(topic.name.full),
            *self._links.deletion_of(topic),
        ]

    def forget(self, topic: Topic) -> Iterator[str]:
        """Remove the topic from memory after its durable deletion; returns the paths of its cursors."""
        self._namespaces.forget_topic(topic.name)
        self._schemas.forget(topic.name)
        self._kafka_topics.forget(topic)
        self._pipelines.forget_topic(topic.name.full)
        self._links.forget(topic)
        return self._cursors.forget_topic(topic.name.full, topic.topic_id.hex())

    async def drop_unnamed_schemas(self) -> None:
        """Delete the schemas that no topic has any more, in the background."""
        await self._schemas.drop_unnamed()
