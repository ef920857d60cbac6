"""Groups of Kafka Streams applications: their members, the topics that they have created, and their description.

`node` is the node that the client asked.  It answers for the groups that it coordinates.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.errors import TopicExists
from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    DescribedStreamsGroup,
    InternalTopic,
    StreamsHeartbeat,
    StreamsHeartbeatResult,
    StreamsStatus,
    Topology,
)
from magnetar.broker.groups.streams.topics import summary
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.errors import TopicNotAuthorized
from magnetar.broker.security.model import Caller, Operation, Resource, group_resource, topic_resource
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.usecases.quotas import Mutations
from magnetar.broker.usecases.topics import PlannedTopic, TopicCases

_DEFAULT: Final = -1  # as a number of replicas


class StreamsGroupCases:
    """See the module's text.  Groups answer with a `GroupError`, which also has a value for success."""

    def __init__(
        self,
        access: AccessControl,
        nodes: Nodes,
        groups: GroupCoordinator,
        kafka_topics: KafkaTopics,
        topics: TopicCases,
    ) -> None:
        self._access = access
        self._nodes = nodes
        self._groups = groups
        self._kafka_topics = kafka_topics
        self._topics = topics

    async def heartbeat(
        self, caller: Caller, node: Node, request: StreamsHeartbeat, mutations: Mutations
    ) -> StreamsHeartbeatResult:
        """A member joins, stays or leaves.  The caller may describe all topics of the topology that it brings, and,
        unless it leaves, those of the group's.  A member's topology may be older than the group's, and the answer is
        about the group's.  It says which topics the group has, which are missing, and which member has which
        partitions.

        Internal topics that are missing are created in the caller's name; what prevents that is in the status, and
        the member's next heartbeat tries again.  Their partitions count as created.

        Raises:
            GroupNotAuthorized, NotCoordinator, TopicNotAuthorized
        """
        self._access.require(caller, Operation.READ, group_resource(request.group_id))
        self._nodes.check_coordinator(node, request.group_id)
        if request.topology is not None:
            problem = self._problem_of_names(request.topology)
            if problem is not None:
                return StreamsHeartbeatResult(GroupError.STREAMS_INVALID_TOPOLOGY, problem)
            for name in request.topology.names:
                self._access.require(caller, Operation.DESCRIBE, self._resource(name))
        answer = self._groups.streams.heartbeat(request)
        result = answer if isinstance(answer, StreamsHeartbeatResult) else await answer
        if not result.missing:
            return result
        return _with_failure(result, await self._create(caller, result.missing, mutations))

    def check_of_topics(self, caller: Caller) -> Callable[[Iterable[str]], None]:
        """A check for answers to the caller's heartbeats, which may show topics of the group that the caller has not
        named.  It raises TopicNotAuthorized at a topic that the caller may not describe.
        """
        return partial(self._require_unnamed, caller)

    def _problem_of_names(self, topology: Topology) -> str | None:
        invalid, internal = [], []
        for name in topology.names:
            try:
                full = self._kafka_topics.name(name)
            except InvalidTopicName:
                invalid.append(name)
                continue
            if self._kafka_topics.internal.has(full):
                internal.append(name)
        if internal:
            shown = ",".join(internal)[:1000]
            return f"Use of Kafka internal topics {shown} in a Kafka Streams topology is prohibited."
        return f"Topic names {','.join(invalid)[:1000]} are not valid topic names." if invalid else None

    def _require_unnamed(self, caller: Caller, names: Iterable[str]) -> None:
        """Check that the caller may describe topics of the group, which it need not have named."""
        for name in names:
            self._access.require_unnamed(caller, Operation.DESCRIBE, self._resource(name))

    def _resource(self, kafka_name: str) -> Resource:
        return topic_resource(self._kafka_topics.full_name_or_itself(kafka_name))

    async def _create(self, caller: Caller, missing: Sequence[InternalTopic], mutations: Mutations) -> str:
        """Create all of these or none; the reason if it was none."""
        names = {topic: self._kafka_topics.name(topic.name) for topic in missing}
        denied = []
        for topic, name in names.items():
            try:
                self._topics.to_create(caller, name)
            except TopicNotAuthorized:
                denied.append(topic.name)
        if denied:
            return f"Unauthorized to CREATE on topics {summary(denied)}."
        planned: list[PlannedTopic] = []
        partitions: Counter[str] = Counter()
        for topic, name in names.items():
            if self._topics.exists(name):  # another member was faster
                continue
            replicas = topic.replication_factor or _DEFAULT
            wanted = NewTopic(name, topic.partitions, replicas, configs=dict(topic.configs))
            try:
                planned.append(self._topics.plan(caller, wanted, partitions, mutations))
            except BrokerError as error:
                return f"Creation failed: {topic.name} ({error})."
        try:
            if planned:
                await self._topics.create(planned)
        except TopicExists:
            pass  # another member was faster
        except BrokerError as error:
            return f"Creation failed: {summary(topic.name for topic in missing)} ({error})."
        return ""

    def describe(self, caller: Caller, node: Node, group_id: str) -> DescribedStreamsGroup:
        """State, topology and members.  The caller may describe all topics of the topology.

        Raises:
            GroupNotAuthorized, NotCoordinator, TopicNotAuthorized
        """
        self._access.require(caller, Operation.DESCRIBE, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        found = self._groups.streams.describe(group_id)
        if found.topology is not None:
            self._require_unnamed(caller, found.topology.names)
        return found


def _with_failure(result: StreamsHeartbeatResult, failure: str) -> StreamsHeartbeatResult:
    """The result with the reason why topics are not created in its status."""
    if not failure:
        return result
    return replace(
        result,
        statuses=tuple(
            (status, f"{text}; {failure}" if status is StreamsStatus.MISSING_INTERNAL_TOPICS else text)
            for status, text in result.statuses
        ),
    )
