"""The deletion of a topic with everything that belongs to it, in one step."""

import asyncio
from collections.abc import Iterator
from typing import Final

from magnetar.base.errors import MetadataLost
from magnetar.base.tasks import Tasks
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.producers.admission import Producers
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.cursor_store import CursorStore
from magnetar.ledger.shared_commits import SharedCommits

_STEP: Final = 256  # partitions that are looked at before others have their turn


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
        subscriptions: Subscriptions,
        cursors: CursorStore,
    ) -> None:
        self._tasks = tasks
        self._commits = commits
        self._topics = topics
        self._kafka_topics = kafka_topics
        self._namespaces = namespaces
        self._schemas = schemas
        self._producers = producers
        self._subscriptions = subscriptions
        self._cursors = cursors

    async def delete(self, topic: Topic) -> None:
        """Delete a topic for good; it is gone when this returns.

        Its name is free then, and what it has left is removed in the background (`topics/deleted.py`).  While it is
        being deleted clients do not find it, and a client that makes another one of the name waits.

        Raises:
            InternalTopic: it is not to be deleted.
            UnknownTopic: it is gone already.
            MetadataError: it is there as before (MetadataLost: that is not known until the next start).
        """
        topic.check_changeable()
        # The request may be given up; what has begun goes on.
        await asyncio.shield(self._tasks.begin(f"delete {topic.name}", self._delete(topic)))

    async def _delete(self, topic: Topic) -> None:
        await self._send_clients_away(topic)  # with their positions stored, should the deletion fail
        async with self._topics.changing(topic):
            operations = self._topics.begin_deletion(topic)
            operations += [*self._namespaces.deletion_of(topic.name), *self._schemas.deletion_of(topic.name)]
            gone: list[Iterator[str]] = []
            try:
                # In the rounds that write cursors, so that what was submitted before is stored before.
                await self._commits.submit(operations, lambda: gone.append(self._forget(topic)))
            except MetadataLost:
                raise
            except BaseException:
                self._topics.undo_deletion(topic)
                raise
        await self._send_clients_away(topic)  # those that came in between
        self._producers.forget(topic)
        for number, partition in enumerate(topic.open_partitions):
            partition.close()  # readers that wait are woken
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
        self._topics.deleted.erase(topic.topic_id, topic.logs, gone[0])

    def _forget(self, topic: Topic) -> Iterator[str]:
        """The topic's deletion is durable: memory says so, before a client can make another one of the name.

        What is returned are the paths of its cursors.
        """
        self._namespaces.forget_topic(topic.name)
        self._schemas.forget(topic.name)
        self._kafka_topics.forget(topic)
        paths = self._cursors.forget_topic(topic.name.full, topic.topic_id.hex())
        self._topics.end_deletion(topic)
        return paths

    async def _send_clients_away(self, topic: Topic) -> None:
        for number, partition in enumerate(topic.open_partitions):
            self._producers.close(partition)
            await self._subscriptions.close_partition(partition)
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
