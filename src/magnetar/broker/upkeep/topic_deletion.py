"""The deletion of a topic with everything that belongs to it, in one step."""

import asyncio
from collections.abc import Iterator
from typing import Final

from magnetar.base.errors import MetadataLost
from magnetar.base.tasks import Tasks
from magnetar.broker.jobs.links import Links
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.producers.admission import Producers
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.broker.upkeep.partition_clients import PartitionClients
from magnetar.ledger.cursor_store import CursorStore
from magnetar.ledger.shared_commits import SharedCommits

_STEP: Final = 256  # partitions in one step, before other work gets its turn


class TopicDeletion:
    """See the module's text."""

    def __init__(
        self,
        tasks: Tasks,
        commits: SharedCommits,
        topics: TopicRegistry,
        kafka_topics: KafkaTopics,
        namespaces: Namespaces,
        schemas: SchemaRegistry,
        producers: Producers,
        clients: PartitionClients,
        cursors: CursorStore,
        pipelines: Pipelines,
        links: Links,
    ) -> None:
        self._tasks = tasks
        self._commits = commits
        self._topics = topics
        self._kafka_topics = kafka_topics
        self._namespaces = namespaces
        self._schemas = schemas
        self._producers = producers
        self._clients = clients
        self._cursors = cursors
        self._pipelines = pipelines
        self._links = links

    async def delete(self, topic: Topic) -> None:
        """Delete a topic for good; it is gone when this returns.

        Its name is free then, and its data is removed in the background (`topics/deleted.py`).  During the deletion
        clients do not find it, and a client that creates a topic of the same name waits.

        Raises:
            InternalTopic: the topic is the server's own.
            UnknownTopic: it is gone already.
            MetadataError: it is unchanged (MetadataLost: whether it is deleted is not known until the next start).
        """
        topic.check_changeable()
        # The request may be cancelled, but a deletion that has begun continues.
        await asyncio.shield(self._tasks.begin(f"delete {topic.name}", self._delete(topic)))

    async def _delete(self, topic: Topic) -> None:
        await self._send_clients_away(topic)  # with their positions stored, because the deletion may fail
        async with self._topics.changing(topic):
            operations = self._topics.begin_deletion(topic)
            operations += [*self._namespaces.deletion_of(topic.name), *self._schemas.deletion_of(topic.name)]
            operations += self._pipelines.deletion_of(topic.name.full)
            operations += self._links.deletion_of(topic)
            gone: list[Iterator[str]] = []
            try:
                # In the same queue as writes of cursors, so that cursors submitted earlier are stored earlier.
                await self._commits.submit(operations, lambda: gone.append(self._forget(topic)))
            except MetadataLost:
                raise
            except BaseException:
                self._topics.undo_deletion(topic)
                raise
        await self._send_clients_away(topic)  # clients that came in between
        self._producers.forget(topic)
        for number, partition in enumerate(topic.open_partitions):
            partition.close()  # wakes waiting readers
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
        self._topics.deleted.erase(topic.topic_id, topic.logs, gone[0])
        self._tasks.spawn("delete schemas that no topic has", self._schemas.drop_unnamed())

    def _forget(self, topic: Topic) -> Iterator[str]:
        """Remove the topic from memory after its durable deletion, before a client can create a topic of the same
        name.

        Returns the paths of its cursors.
        """
        self._namespaces.forget_topic(topic.name)
        self._schemas.forget(topic.name)
        self._kafka_topics.forget(topic)
        self._pipelines.forget_topic(topic.name.full)
        self._links.forget(topic)
        paths = self._cursors.forget_topic(topic.name.full, topic.topic_id.hex())
        self._topics.end_deletion(topic)
        return paths

    async def _send_clients_away(self, topic: Topic) -> None:
        for number, partition in enumerate(topic.open_partitions):
            await self._clients.send_away(partition)
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
