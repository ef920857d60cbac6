"""What the broker's rules depend on, as the server's configuration says it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from magnetar.base.replicator_variables import ReplicatorVariables
from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.base.settings_compaction import CompactionSettings
from magnetar.base.settings_delegation import DelegationTokenSettings
from magnetar.base.settings_subscriptions import FAILOVER_DELAY_MS, UnackedLimits
from magnetar.base.settings_tenancy import TenancyLimits
from magnetar.base.table_roots import TableRoots
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.jobs.model import PipelineKeys
from magnetar.broker.jobs.settings import JobSettings
from magnetar.broker.policy.model import Policies
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.broker.upkeep.settings import UpkeepSettings


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings of the broker's rules.  Times are in milliseconds, sizes in bytes."""

    tenant: str = "public"
    namespace: str = "default"
    cluster_id: str = "magnetar"
    auto_create_topics: bool = True
    delete_topics: bool = True
    partition_count_default: int = 1
    replication_factor_default: int = 1
    entry_cache_bytes: int = 1 << 28
    pulsar_message_bytes_max: int = 5 << 20
    retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = 86_400_000
    producer_ids_max: int = 100_000
    topic_defaults: Mapping[str, str] = field(default_factory=dict)  # broker keys that were set, as text
    groups: GroupSettings = field(default_factory=GroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    data_dir: str = ""  # as clients are shown it
    functions_enabled: bool = True
    table_roots: TableRoots = field(default_factory=TableRoots)  # where tables of pipelines may lie
    # Of Kafka's listeners, by name: those that the pipelines' worker may use, and whether they speak TLS.
    worker_listeners: Mapping[str, bool] = field(default_factory=dict)
    pipeline_keys: PipelineKeys = field(default_factory=PipelineKeys)
    # The server's environment, and which of its variables replicators of a namespace may use.
    replicator_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    replicator_variables: ReplicatorVariables = field(default_factory=ReplicatorVariables)
    given: Mapping[str, str] = field(default_factory=dict)  # all server keys that were set, as text
    own_connections: Mapping[tuple[str, str], str] = field(default_factory=dict)  # keys of single listeners
    kafka_listeners: Collection[str] = ()  # their names
    authorization: AuthorizationSettings | None = None  # without it each caller may do everything
    delegation_tokens: DelegationTokenSettings = field(default_factory=DelegationTokenSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    unacked_limits: UnackedLimits = field(default_factory=UnackedLimits)
    failover_delay_ms: int = FAILOVER_DELAY_MS
    deduplication: bool = False  # of Pulsar's producers, where no policy says so
    tenancy: TenancyLimits = field(default_factory=TenancyLimits)

    @property
    def policies(self) -> Policies:
        """What holds for a topic of which no policy says otherwise."""
        return Policies(
            deduplication=self.deduplication,
            unacked_limits=self.unacked_limits,
            failover_delay_ms=self.failover_delay_ms,
        )

    @property
    def jobs(self) -> JobSettings:
        """Those of pipelines, functions and replicators."""
        return JobSettings(
            self.functions_enabled,
            self.table_roots,
            self.pipeline_keys,
            self.replicator_environment,
            self.replicator_variables,
        )

    @property
    def upkeep(self) -> UpkeepSettings:
        """Those of what the broker does by itself."""
        return UpkeepSettings(
            self.retention_check_interval_ms,
            self.producer_id_expiration_ms,
            self.producer_ids_max,
            self.compaction,
        )
