"""CreateTopics: create any number of topics, stored in one step.

Served: v2-7 (v4 defaults by -1; v5 returns the effective settings, KIP-525; v7 topic ids, KIP-516).  Each topic
succeeds or fails by itself.  One commit stores all that succeed, so a thousand topics cost one synced write.  A topic
that the request names twice, even in two spellings, is refused.  So is one (POLICY_VIOLATION) for which the policy
`maxTopicsPerNamespace` of its namespace leaves no room after those before it in the request.  `timeout_ms` has no
effect: when the server answers, the topic exists.  Any node takes the request, because all nodes are one process.
Beyond the client's quota of mutations the server refuses topics (v6+, THROTTLING_QUOTA_EXCEEDED), or the client waits
afterwards (KIP-599).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.names import TopicName
from magnetar.broker.policy.errors import InvalidConfig
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.usecases.quotas import Mutations
from magnetar.broker.usecases.topics import PlannedTopic, TopicCases
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, ELEMENTS_PER_TURN
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import create_topics as codec
from magnetar.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

VERSIONS = (2, 7)

PARTITIONS_PER_REQUEST_MAX: Final = 10_000  # as in Kafka: a limit on the cost of a request
_STRICT_SINCE: Final = 6


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    topics = context.cases.topics
    mutations = context.meter.mutations(is_strict=context.api_version >= _STRICT_SINCE)
    response = CreateTopicsResponse()
    rows = response.topics
    wanted = list({topic.name: topic for topic in request.topics}.values())
    if _partitions_of(topics.partition_count_default, wanted) > PARTITIONS_PER_REQUEST_MAX:
        message = "Excessively large number of partitions per request."
        rows.extend(_refused(topic.name, ErrorCode.POLICY_VIOLATION, message) for topic in wanted)
        return response
    names = _names(context, wanted, rows)
    counts = Counter(names[topic.name] for topic in request.topics if topic.name in names)
    planned: list[tuple[PlannedTopic, CreatableTopicResult]] = []
    partitions: Counter[str] = Counter()  # new partitions by namespace
    described: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
    for number, topic in enumerate(wanted):
        if number % ELEMENTS_PER_TURN == 0 and len(wanted) > ELEMENTS_AT_ONCE:
            async with context.service.large.turn(ELEMENTS_PER_TURN):
                pass  # `create` looks again at what others may have done meanwhile
        name = names.get(topic.name)
        if name is None:
            continue
        if counts[name] > 1:
            rows.append(_refused(topic.name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            continue
        try:
            row = _plan(context, topic, name, planned, partitions, described, mutations)
        except BrokerError as error:
            row = _refused(topic.name, error_code(error), str(error))
        rows.append(row)
    if planned and not request.validate_only:
        try:
            await topics.create([topic for topic, _ in planned])
        except BrokerError as error:
            for _, row in planned:
                _refuse(row, error_code(error), str(error))
    response.throttle_time_ms = mutations.throttle_ms()
    return response


def _partitions_of(default: int, wanted: Sequence[CreatableTopic]) -> int:
    return sum(
        len(topic.assignments) or (default if topic.num_partitions == -1 else topic.num_partitions)
        for topic in wanted
        if topic.num_partitions >= -1
    )


def _names(
    context: RequestContext, wanted: Sequence[CreatableTopic], rows: list[CreatableTopicResult]
) -> dict[str, TopicName]:
    names = {}
    for topic in wanted:
        try:
            names[topic.name] = context.cases.kafka_names.name(topic.name)
        except BrokerError as error:
            rows.append(_refused(topic.name, error_code(error), str(error)))
    return names


def _plan(
    context: RequestContext,
    wanted: CreatableTopic,
    name: TopicName,
    planned: list[tuple[PlannedTopic, CreatableTopicResult]],
    partitions: Counter[str],
    described: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]],
    mutations: Mutations,
) -> CreatableTopicResult:
    topics = context.cases.topics
    topics.to_create(context.caller, name)
    configs = {config.name: config.value for config in wanted.configs}
    nulls = [config for config, value in configs.items() if value is None]
    if nulls:
        raise InvalidConfig(f"Null value not supported for topic configs: {', '.join(nulls)[:1000]}")
    new = NewTopic(name, wanted.num_partitions, wanted.replication_factor, configs=configs)
    if wanted.assignments:
        by_hand = {one.partition_index: one.broker_ids for one in wanted.assignments}
        problem = None
        if wanted.replication_factor != -1:
            problem = "A manual partition assignment was specified, but replication factor was not set to -1."
        elif wanted.num_partitions != -1:
            problem = "A manual partition assignment was specified, but numPartitions was not set to -1."
        if problem is not None and not topics.exists(name):
            return _refused(wanted.name, ErrorCode.INVALID_REQUEST, problem)
        if len(by_hand) < len(wanted.assignments):
            counts = Counter(one.partition_index for one in wanted.assignments)
            message = (
                f"Found multiple manual partition assignments for partition {counts.most_common(1)[0][0]}"
            )
            return _refused(wanted.name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        if sorted(by_hand) != list(range(len(by_hand))):
            message = "partitions should be a consecutive 0-based integer sequence"
            return _refused(wanted.name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        new.replicas = [by_hand[index] for index in range(len(by_hand))]
        new.partition_count = new.replication_factor = -1
    topic = topics.plan(context.caller, new, partitions, mutations)
    if not topics.may_describe_configs(context.caller, name):
        row = CreatableTopicResult(
            wanted.name,
            topic.topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=[],
        )
        planned.append((topic, row))
        return row
    identity = frozenset(topic.overrides.items())
    if identity not in described:
        described[identity] = _describe(topics, topic)
    row = CreatableTopicResult(
        wanted.name,
        topic.topic_id,
        error_message=None,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=described[identity],
    )
    planned.append((topic, row))
    return row


def _describe(topics: TopicCases, topic: PlannedTopic) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(entry.name, entry.value, entry.read_only, entry.source, entry.sensitive)
        for entry in topics.default_settings(topic.overrides)
    ]


def _refused(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    row = CreatableTopicResult(name)
    _refuse(row, code, message)
    return row


def _refuse(row: CreatableTopicResult, code: ErrorCode, message: str) -> None:
    row.error_code = code
    row.error_message = message
    row.topic_id = bytes(16)
    row.num_partitions = row.replication_factor = -1
    row.configs = []  # not null, which makes the Java client fail


API = Api.of(codec, VERSIONS, handle)
