"""Topics that are created because a Pulsar client uses them, where the namespace's policy allows it.  That is a
change: the audit log has it beside the operation that caused it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from magnetar.base.names import parse_partition
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, topic_resource
from magnetar.broker.topics.pulsar import PulsarTopics


async def open_topic(
    access: AccessControl, topics: PulsarTopics, caller: Caller, topic: str, *, may_create: bool = True
) -> Partition:
    """As `PulsarTopics.open`."""
    async with _noting(access, topics, caller, topic):
        return await topics.open(topic, may_create=may_create)


async def count_or_create(
    access: AccessControl, topics: PulsarTopics, caller: Caller, topic: str, *, may_create: bool = True
) -> int:
    """As `PulsarTopics.partition_count_or_create`."""
    async with _noting(access, topics, caller, topic):
        return await topics.partition_count_or_create(topic, may_create=may_create)


@asynccontextmanager
async def _noting(
    access: AccessControl, topics: PulsarTopics, caller: Caller, topic: str
) -> AsyncIterator[None]:
    name = parse_partition(topic)[0]
    was_there = topics.is_there(name)
    yield
    if not was_there and topics.is_there(name):
        await access.note(caller, Change.TOPIC_CREATE, topic_resource(name.full), automatic=True)
