"""The deletion of a topic with everything that belongs to it, in one step."""

import asyncio
from collections.abc import Iterator
from typing import Final

from magnetar.base.errors import MetadataLost
from magnetar.base.tasks import Tasks
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.broker.upkeep.partition_clients import PartitionClients
from magnetar.broker.upkeep.topic_traces import TopicTraces
from magnetar.ledger.shared_commits import SharedCommits

_STEP: Final = 256  # partitions in one step, before other work gets its turn


class TopicDeletion:
    """See the module's text."""

    def __init__(
        self,
        tasks: Tasks,
        commits: SharedCommits,
        topics: TopicRegistry,
        clients: PartitionClients,
        traces: TopicTraces,
    ) -> None:
        self._tasks = tasks
        self._commits = commits
        self._topics = topics
        self._clients = clients
        self._traces = traces

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
            operations = [*self._topics.begin_deletion(topic), *self._traces.deletion_of(topic)]
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
        self._clients.refuse(topic)
        for number, partition in enumerate(topic.open_partitions):
            partition.close()  # wakes waiting readers
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
        topic.let_go()
        self._topics.deleted.erase(topic.topic_id, topic.logs, gone[0])
        self._tasks.spawn("delete schemas that no topic has", self._traces.drop_unnamed_schemas())

    def _forget(self, topic: Topic) -> Iterator[str]:
        """Remove the topic from memory after its durable deletion, before a client can create a topic of the same
        name.

        Returns the paths of its cursors.
        """
        paths = self._traces.forget(topic)
        self._topics.end_deletion(topic)
        return paths

    async def _send_clients_away(self, topic: Topic) -> None:
        for number, partition in enumerate(topic.open_partitions):
            await self._clients.send_away(partition)
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
