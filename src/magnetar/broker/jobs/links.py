"""Linked topics: copies of another cluster's topics, at the same offsets (`usecases/links.py`).

A link is a row of the metadata store at `/links/<topic id in hex>`, JSON::

    {"v": 1, "topic": "persistent://public/default/orders", "source": "kafka://host:9092",
     "origin": "<cluster id>/<topic id>", "created_ms": ...}

It is stored before its topic, so the topic never exists without it.  It goes with the topic, or when the topic is cut
loose.  While it is there, the topic's partitions take records only from the link (`log/linked.py`): `is_linked` says
so.

The program that copies reports how far it is.  Reports are not stored.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from magnetar.base.names import TopicName
from magnetar.broker.jobs.errors import LinkNotFound
from magnetar.broker.jobs.model import Link, LinkReport
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.metadata.store import MUST_NOT_EXIST, Delete, MetadataStore

ROOT: Final = "/links/"


class Links:
    """See the module's text."""

    def __init__(self, metadata: MetadataStore, topics: TopicRegistry) -> None:
        self._metadata = metadata
        self._topics = topics
        self._by_id: dict[str, Link] = {}  # by topic id, in hex
        self._by_name: dict[str, Link] = {}  # by the full name of the topic: the newest one
        self._reports: dict[str, LinkReport] = {}
        topics.opened.hear(self._apply)

    async def load(self) -> None:
        """Read all links, after the topics; rows of topics that were never created are deleted.

        Raises:
            MetadataError
        """
        strays = []
        ids = {topic.topic_id.hex(): topic for topic in self._topics}
        for path, stored in await self._metadata.scan(ROOT):
            topic_id = path[len(ROOT) :]
            if topic_id not in ids:
                strays.append(Delete(path))
                continue
            row = json.loads(stored.value)
            self._keep(Link(topic_id, row["topic"], row["source"], row["origin"], row["created_ms"]))
            self._apply_to(ids[topic_id])
        if strays:
            await self._metadata.commit(strays)

    def all(self) -> Sequence[Link]:
        """All links, by the names of their topics."""
        return sorted(self._by_id.values(), key=lambda link: link.topic)

    def find(self, topic: Topic) -> Link | None:
        """The link of a topic; None if it is not linked."""
        return self._by_id.get(topic.topic_id.hex())

    def is_linked(self, name: TopicName) -> bool:
        """Whether the topic of this name, or the stored one with which it shares its schemas, is linked."""
        return replace(name, persistent=True).full in self._by_name

    def require(self, topic: Topic) -> Link:
        """The link of a topic.

        Raises:
            LinkNotFound
        """
        link = self.find(topic)
        if link is None:
            raise LinkNotFound(f"the topic {topic.name} is not linked")
        return link

    def report(self, link: Link) -> LinkReport | None:
        """The last report since the server's start; None if there is none."""
        return self._reports.get(link.topic_id)

    def reported(self, link: Link, report: LinkReport) -> None:
        self._reports[link.topic_id] = report

    async def add(self, link: Link) -> None:
        """Store a link, before its topic is created.

        Raises:
            MetadataError: there is no link.
        """
        row = {
            "v": 1,
            "topic": link.topic,
            "source": link.source,
            "origin": link.origin,
            "created_ms": link.created_ms,
        }
        await self._metadata.put(ROOT + link.topic_id, json.dumps(row).encode(), MUST_NOT_EXIST)
        self._keep(link)

    async def remove(self, link: Link, topic: Topic) -> None:
        """Cut the topic loose: all producers may write to it when this returns.

        Raises:
            MetadataError: it is linked as before.
        """
        await self._metadata.delete(ROOT + link.topic_id)
        self.forget(topic)
        self._apply_to(topic)

    def deletion_of(self, topic: Topic) -> list[Delete]:
        """What belongs into the transaction that deletes a topic; `forget` is called once that is durable."""
        return [Delete(ROOT + link.topic_id)] if (link := self.find(topic)) is not None else []

    def forget(self, topic: Topic) -> None:
        """The topic is deleted, or no longer linked."""
        topic_id = topic.topic_id.hex()
        link = self._by_id.pop(topic_id, None)
        if link is not None and self._by_name.get(link.topic) is link:
            del self._by_name[link.topic]
        self._reports.pop(topic_id, None)

    def _keep(self, link: Link) -> None:
        self._by_id[link.topic_id] = link
        self._by_name[link.topic] = link

    def _apply_to(self, topic: Topic) -> None:
        for partition in topic.open_partitions:
            self._apply(partition)

    def _apply(self, partition: Partition) -> None:
        """Let the partition know whether it is linked: its log's name ends with the topic's id."""
        partition.is_linked = partition.log.name.rpartition("@")[2] in self._by_id
