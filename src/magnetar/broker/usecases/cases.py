"""All use cases, by noun: the part of the broker that a door gets."""

from collections.abc import Callable
from dataclasses import dataclass

from magnetar.base.clock import Clock
from magnetar.broker.usecases.acls import AclCases
from magnetar.broker.usecases.cluster import ClusterCases
from magnetar.broker.usecases.configs import ConfigCases
from magnetar.broker.usecases.delegation_tokens import DelegationTokenCases
from magnetar.broker.usecases.functions import FunctionCases
from magnetar.broker.usecases.groups import GroupCases
from magnetar.broker.usecases.handles import KafkaNames
from magnetar.broker.usecases.history import HistoryCases
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
from magnetar.broker.usecases.sasl import SaslCases
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
from magnetar.broker.usecases.topic_state import TopicStateCases
from magnetar.broker.usecases.topics import TopicCases
from magnetar.broker.usecases.transactions import TransactionCases
from magnetar.ledger.entry import EntryKind


@dataclass(frozen=True, slots=True)
class UseCases:
    """`clock` is the broker's.

    A door calls `client_connected` for each connection, with the kind of entries that its clients write.  The broker
    loads the code that converts entries once clients of both kinds have connected.
    """

    clock: Clock
    client_connected: Callable[[EntryKind], None]
    kafka_names: KafkaNames
    logins: LoginCases
    sasl: SaslCases
    scram: ScramCases
    delegation_tokens: DelegationTokenCases
    topics: TopicCases
    pulsar_topics: PulsarTopicCases
    schemas: SchemaCases
    publishing: PublishCases
    messages: MessageCases
    subscribing: SubscribeCases
    tenants: TenantCases
    namespaces: NamespaceCases
    policies: PolicyCases
    subscriptions: SubscriptionCases
    positions: PositionCases
    history: HistoryCases
    pipelines: PipelineCases
    pipeline_worker: PipelineWorkerCases
    functions: FunctionCases
    replicators: ReplicatorCases
    links: LinkCases
    reading: ReadCases
    groups: GroupCases
    streams_groups: StreamsGroupCases
    offsets: OffsetCases
    transactions: TransactionCases
    pulsar_transactions: PulsarTransactionCases
    pulsar_transactions_admin: PulsarTransactionAdminCases
    configs: ConfigCases
    quotas: QuotaCases
    resource_groups: ResourceGroupCases
    acls: AclCases
    permissions: PermissionCases
    standing: Standing
    nodes: NodeCases
    sharing: ShareCases
    share_offsets: ShareOffsetCases
    cluster: ClusterCases
    peeking: PeekCases
    topic_state: TopicStateCases
    statistics: StatisticsCases
    metrics: MetricsCases
    telemetry: TelemetryCases
