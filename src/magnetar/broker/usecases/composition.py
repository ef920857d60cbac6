"""Which parts of the broker each use case gets."""

from collections.abc import Mapping
from typing import Protocol

from magnetar.base.clock import Clock
from magnetar.broker.cluster.model import Nodes
from magnetar.broker.cluster.seat import Seat
from magnetar.broker.history.replicator_rates import ReplicatorRates
from magnetar.broker.history.segments import SegmentCatalogue
from magnetar.broker.history.stored_records import StoredRecords
from magnetar.broker.interop.interop import Interop
from magnetar.broker.interop.lookups import TimeLookups
from magnetar.broker.jobs.functions import Functions
from magnetar.broker.jobs.links import Links
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.jobs.replicators import Replicators
from magnetar.broker.log.opening import Opener
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.dynamic_config import BrokerConfigs
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.producers.ids import ProducerIds
from magnetar.broker.quotas.admission import Admission
from magnetar.broker.quotas.client_quotas import ClientQuotas
from magnetar.broker.quotas.resource_groups import ResourceGroups
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.security.audit import Audit
from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.delegation_tokens import DelegationTokens
from magnetar.broker.security.rules import Rules
from magnetar.broker.security.scram_credentials import ScramCredentials
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.subscriptions.share.sessions import ShareSessions
from magnetar.broker.telemetry.clients import TelemetryClients
from magnetar.broker.telemetry.subscriptions import TelemetrySubscriptions
from magnetar.broker.topics.kafka_names import KafkaTopicNames
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.broker.topics.topic import Topic
from magnetar.broker.transactions.coordinator import TransactionCoordinator
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.broker.upkeep.cluster_part import ClusterPart
from magnetar.broker.upkeep.deduplication_learner import DeduplicationLearner
from magnetar.broker.upkeep.health import Health
from magnetar.broker.upkeep.housekeeping import Housekeeping
from magnetar.broker.upkeep.metrics import Measured
from magnetar.broker.upkeep.retention_pass import RetentionPass
from magnetar.broker.usecases.acls import AclCases
from magnetar.broker.usecases.cases import UseCases
from magnetar.broker.usecases.cluster import ClusterCases
from magnetar.broker.usecases.configs import ConfigCases
from magnetar.broker.usecases.delegation_tokens import DelegationTokenCases
from magnetar.broker.usecases.function_ends import FunctionEnds
from magnetar.broker.usecases.functions import FunctionCases
from magnetar.broker.usecases.groups import GroupCases
from magnetar.broker.usecases.history import HistoryCases
from magnetar.broker.usecases.known_groups import KnownGroups
from magnetar.broker.usecases.links import LinkCases
from magnetar.broker.usecases.logins import LoginCases
from magnetar.broker.usecases.messages import MessageCases
from magnetar.broker.usecases.metrics import MetricsCases
from magnetar.broker.usecases.namespaces import NamespaceCases
from magnetar.broker.usecases.nodes import NodeCases
from magnetar.broker.usecases.offsets import OffsetCases
from magnetar.broker.usecases.peeking import PeekCases
from magnetar.broker.usecases.permissions import PermissionCases
from magnetar.broker.usecases.pipeline_worker import PipelineWorkerCases
from magnetar.broker.usecases.pipelines import PipelineCases
from magnetar.broker.usecases.policies import PolicyCases
from magnetar.broker.usecases.positions import PositionCases
from magnetar.broker.usecases.publishing import PublishCases
from magnetar.broker.usecases.pulsar_topics import PulsarTopicCases
from magnetar.broker.usecases.pulsar_transactions import PulsarTransactionCases
from magnetar.broker.usecases.pulsar_transactions_admin import PulsarTransactionAdminCases
from magnetar.broker.usecases.quotas import QuotaCases
from magnetar.broker.usecases.reading import ReadCases
from magnetar.broker.usecases.replicators import ReplicatorCases
from magnetar.broker.usecases.resource_groups import ResourceGroupCases
from magnetar.broker.usecases.sasl import BearerOf, SaslCases
from magnetar.broker.usecases.schemas import SchemaCases
from magnetar.broker.usecases.scram import ScramCases
from magnetar.broker.usecases.share_offsets import ShareOffsetCases
from magnetar.broker.usecases.sharing import ShareCases
from magnetar.broker.usecases.standing import Standing
from magnetar.broker.usecases.statistics import StatisticsCases
from magnetar.broker.usecases.streams_groups import StreamsGroupCases
from magnetar.broker.usecases.subscribing import SubscribeCases
from magnetar.broker.usecases.subscriptions import SubscriptionCases
from magnetar.broker.usecases.telemetry import TelemetryCases
from magnetar.broker.usecases.tenants import TenantCases
from magnetar.broker.usecases.topic_access import TopicAccess
from magnetar.broker.usecases.topic_state import TopicStateCases
from magnetar.broker.usecases.topics import TopicCases
from magnetar.broker.usecases.transactions import TransactionCases


class Settings(Protocol):
    """The broker's settings that are rules of a use case."""

    @property
    def auto_create_topics(self) -> bool: ...
    @property
    def delete_topics(self) -> bool: ...
    @property
    def partition_count_default(self) -> int: ...
    @property
    def tenant(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def data_dir(self) -> str: ...
    @property
    def worker_listeners(self) -> Mapping[str, bool]: ...
    @property
    def given(self) -> Mapping[str, str]: ...
    @property
    def transactions(self) -> TransactionSettings: ...


class Parts(Measured, Protocol):
    """The parts of the broker from which its use cases are made."""

    @property
    def settings(self) -> Settings: ...

    clock: Clock
    pulsar_topics: PulsarTopics
    kafka_names: KafkaTopicNames
    namespaces: Namespaces
    schemas: SchemaRegistry
    opener: Opener
    interop: Interop
    learner: DeduplicationLearner
    housekeeping: Housekeeping
    retention: RetentionPass
    nodes: Nodes
    seat: Seat | None
    part: ClusterPart | None
    health: Health
    subscription_admin: SubscriptionAdmin
    pipelines: Pipelines
    functions: Functions
    links: Links
    admission: Admission
    replicators: Replicators
    replicator_rates: ReplicatorRates
    segments: SegmentCatalogue
    stored_records: StoredRecords
    share_sessions: ShareSessions
    transactions: TransactionCoordinator
    pulsar_transactions: PulsarTransactions
    producer_ids: ProducerIds
    scram: ScramCredentials
    delegation_tokens: DelegationTokens
    client_quotas: ClientQuotas
    resource_groups: ResourceGroups
    broker_configs: BrokerConfigs
    telemetry_subscriptions: TelemetrySubscriptions
    telemetry: TelemetryClients
    time_lookups: TimeLookups
    rules: Rules | None
    standing: Standing

    async def delete_topic(self, topic: Topic) -> None: ...
    async def unload(self, partition: Partition) -> None: ...


def compose(
    parts: Parts,
    access: AccessControl,
    audit: Audit,
    authentication: Authentication | None = None,
    bearer_of: BearerOf | None = None,
) -> UseCases:
    """The use cases of a broker with these parts.  Each asks `access` for the caller's rights; `access` writes
    `audit`, and so do logins.
    """
    settings = parts.settings
    has_transactions = settings.transactions.transaction_coordinator_enabled
    topic_access = TopicAccess(access, parts.topics, parts.kafka_topics)
    known_groups = KnownGroups(access, parts.groups, parts.cursors, parts.kafka_names.home)
    standing = parts.standing
    publishing = PublishCases(
        parts.clock,
        access,
        topic_access,
        parts.pulsar_topics,
        parts.namespaces,
        parts.producers,
        parts.schemas,
        parts.subscriptions,
        parts.opener,
        parts.housekeeping.check_producers,
        parts.learner,
        standing,
        parts.pulsar_transactions,
    )
    topics = TopicCases(
        topic_access,
        parts.delete_topic,
        may_create=settings.auto_create_topics,
        may_delete=settings.delete_topics,
        partition_count_default=settings.partition_count_default,
    )
    function_ends = FunctionEnds(access, parts.functions, parts.pulsar_topics, parts.subscription_admin)
    namespaces = NamespaceCases(
        access,
        parts.namespaces,
        parts.pulsar_topics,
        parts.unload,
        parts.functions,
        function_ends,
        parts.part,
    )
    return UseCases(
        clock=parts.clock,
        client_connected=parts.interop.client_connected,
        kafka_names=parts.kafka_names,
        logins=LoginCases(
            authentication,
            audit,
            parts.pipelines,
            parts.functions,
            parts.delegation_tokens,
            parts.scram,
            parts.admission,
        ),
        sasl=SaslCases(parts.scram, parts.delegation_tokens, parts.pipelines, authentication, bearer_of),
        scram=ScramCases(access, parts.scram),
        delegation_tokens=DelegationTokenCases(access, parts.delegation_tokens, parts.clock),
        topics=topics,
        pulsar_topics=PulsarTopicCases(
            access,
            parts.pulsar_topics,
            parts.namespaces,
            parts.topics.observers,
            standing,
            coordinators=1 if has_transactions and parts.seat is None else 0,
            seat=parts.seat,
        ),
        schemas=SchemaCases(access, parts.schemas, parts.pulsar_topics, parts.namespaces),
        publishing=publishing,
        messages=MessageCases(
            parts.clock,
            topic_access,
            publishing,
            parts.interop,
            parts.stored_records,
            parts.opener,
        ),
        subscribing=SubscribeCases(
            access,
            parts.pulsar_topics,
            parts.namespaces,
            parts.producers,
            parts.schemas,
            parts.subscriptions,
            standing,
        ),
        tenants=TenantCases(
            access,
            parts.namespaces,
            parts.pulsar_topics,
            function_ends,
            namespaces.require_forced_deletion,
        ),
        namespaces=namespaces,
        policies=PolicyCases(access, parts.namespaces, parts.pulsar_topics),
        subscriptions=SubscriptionCases(
            access, parts.clock, parts.pulsar_topics, parts.subscriptions, parts.subscription_admin
        ),
        positions=PositionCases(
            topic_access,
            parts.cursors,
            parts.segments,
            parts.subscription_admin,
            parts.replicator_rates,
            parts.pipelines.read_bytes,
            known_groups,
        ),
        history=HistoryCases(
            access,
            parts.topics,
            parts.kafka_topics,
            parts.segments,
            parts.stored_records,
            parts.schemas,
            standing,
        ),
        pipelines=PipelineCases(access, parts.pipelines, parts.namespaces, parts.clock),
        pipeline_worker=PipelineWorkerCases(parts.pipelines, parts.nodes, settings.worker_listeners),
        functions=FunctionCases(access, parts.functions, parts.namespaces, function_ends),
        replicators=ReplicatorCases(
            access,
            parts.namespaces,
            parts.pulsar_topics,
            parts.replicators,
            parts.pipelines,
            parts.subscriptions,
            parts.subscription_admin,
            parts.replicator_rates,
        ),
        links=LinkCases(
            topic_access,
            parts.clock,
            parts.links,
            parts.groups.offsets,
            parts.schemas,
            parts.subscription_admin,
        ),
        cluster=ClusterCases(access, parts.health, parts.housekeeping),
        peeking=PeekCases(access, parts.pulsar_topics, parts.subscriptions.forms, parts.opener),
        topic_state=TopicStateCases(
            access,
            parts.topics,
            parts.pulsar_topics,
            parts.subscriptions.forms,
            parts.unload,
            parts.subscription_admin.truncate,
            parts.beside,
            parts.retention.retain,
        ),
        statistics=StatisticsCases(
            access,
            parts.clock,
            parts.pulsar_topics,
            parts.namespaces,
            parts.rates,
            parts.producers,
            parts.subscriptions,
            parts.subscription_admin,
            parts.groups.consumes,
            parts.housekeeping.expired,
        ),
        metrics=MetricsCases(access, parts, parts.interop, parts.pipelines, parts.functions, parts.telemetry),
        telemetry=TelemetryCases(parts.telemetry, parts.opener),
        reading=ReadCases(topic_access, parts.interop, parts.time_lookups),
        groups=GroupCases(access, parts.nodes, parts.groups, known_groups, parts.kafka_topics),
        streams_groups=StreamsGroupCases(access, parts.nodes, parts.groups, parts.kafka_topics, topics),
        offsets=OffsetCases(
            access,
            parts.nodes,
            parts.groups.offsets,
            parts.transactions,
            parts.topics,
            parts.kafka_topics,
            known_groups,
        ),
        transactions=TransactionCases(
            access, topic_access, parts.nodes, parts.transactions, parts.producer_ids, parts.kafka_topics
        ),
        pulsar_transactions=PulsarTransactionCases(
            access, parts.pulsar_topics, parts.pulsar_transactions, is_enabled=has_transactions
        ),
        pulsar_transactions_admin=PulsarTransactionAdminCases(
            access,
            parts.pulsar_topics,
            parts.subscription_admin,
            parts.pulsar_transactions,
            is_enabled=has_transactions,
        ),
        configs=ConfigCases(
            topic_access,
            parts.nodes,
            settings.given,
            parts.broker_configs,
            parts.groups.configs,
            parts.telemetry_subscriptions,
        ),
        quotas=QuotaCases(access, parts.client_quotas, parts.clock),
        resource_groups=ResourceGroupCases(access, parts.resource_groups, parts.namespaces),
        acls=AclCases(access, parts.rules, settings.tenant, settings.namespace),
        permissions=PermissionCases(access, parts.rules, parts.namespaces, parts.pulsar_topics),
        standing=standing,
        sharing=ShareCases(access, topic_access, parts.interop, parts.share_sessions, standing),
        share_offsets=ShareOffsetCases(
            topic_access,
            parts.nodes,
            parts.groups,
            parts.cursors,
            parts.clock,
            known_groups,
        ),
        nodes=NodeCases(
            access,
            parts.nodes,
            parts.topics,
            parts.kafka_topics,
            settings.cluster_id,
            settings.data_dir,
        ),
    )
