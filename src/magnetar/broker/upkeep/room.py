"""The parts of this room, and what each of them gets."""

from functools import partial
from typing import Final

from magnetar.base.times import Times
from magnetar.broker.compaction.beside import CompactorBeside
from magnetar.broker.compaction.compactor import Compactor
from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.log.rates import RateBoard
from magnetar.broker.quotas.resource_groups import ResourceGroups
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.upkeep.compaction_pass import CompactionPass
from magnetar.broker.upkeep.compaction_thresholds import CompactionThresholds
from magnetar.broker.upkeep.connected import ConnectedClients
from magnetar.broker.upkeep.counted import counted
from magnetar.broker.upkeep.deduplication_learner import DeduplicationLearner
from magnetar.broker.upkeep.health import Health, metadata_probe
from magnetar.broker.upkeep.housekeeping import Housekeeping
from magnetar.broker.upkeep.partition_clients import PartitionClients
from magnetar.broker.upkeep.partition_limits import PartitionLimits
from magnetar.broker.upkeep.producer_limit import ProducerLimit
from magnetar.broker.upkeep.retention_pass import RetentionPass
from magnetar.broker.upkeep.settings import UpkeepSettings
from magnetar.broker.upkeep.snapshots import ProducerSnapshots
from magnetar.broker.upkeep.stored_time import StoredTime
from magnetar.broker.upkeep.topic_deletion import TopicDeletion
from magnetar.broker.upkeep.topic_traces import TopicTraces
from magnetar.broker.upkeep.topics_in_use import TopicsInUse
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.shared_commits import SharedCommits


class UpkeepRoom:
    """See the module's text.  `traces` go with a topic that is deleted, in a transaction by `commits`."""

    def __init__(
        self,
        settings: UpkeepSettings,
        times: Times,
        environment: LedgerEnvironment,
        commits: SharedCommits,
        in_use: TopicsInUse,
        traces: TopicTraces,
        *,
        groups: GroupCoordinator,
        pipelines: Pipelines,
        resource_groups: ResourceGroups,
        subscription_admin: SubscriptionAdmin,
    ) -> None:
        topics, producers, subscriptions = in_use.topics, in_use.producers, in_use.subscriptions
        self.stored_time: Final = StoredTime(environment.metadata, times)
        self.limits: Final = PartitionLimits(times.clock, in_use, resource_groups, environment.tasks)
        # Producers that partitions remember.
        self.learner: Final = DeduplicationLearner(times.clock)
        self.snapshots: Final = ProducerSnapshots(topics, environment.metadata, times)
        self.producer_limit: Final = ProducerLimit(topics, settings.producer_ids_max)
        # Topics, and what they hold.
        self.clients: Final = PartitionClients(topics, producers, subscriptions)
        self.connected: Final = ConnectedClients(in_use, groups, pipelines)
        self.deletion: Final = TopicDeletion(environment.tasks, commits, topics, self.clients, traces)
        self.housekeeping: Final = Housekeeping(
            times, in_use, subscription_admin, self.connected, self.deletion
        )
        self.retention: Final = RetentionPass(times, in_use, settings)
        self.rates: Final = RateBoard(times, partial(counted, topics, producers, subscriptions))
        # Compaction: Kafka's, then Pulsar's.
        self.compactor: Final = Compactor(times.clock, environment.tombstones, settings.compaction)
        self.compaction: Final = CompactionPass(times, topics, self.snapshots, self.compactor)
        self.beside: Final = CompactorBeside(times.clock, self.compactor, subscription_admin.hold)
        self.thresholds: Final = CompactionThresholds(times.upkeep, topics, in_use.namespaces, self.beside)

        self.health: Final = Health(times.clock)
        self.health.register("tasks", lambda: times.upkeep.problem)
        self.health.probe("metadata_write", "A write of metadata", metadata_probe(environment.metadata))
        self.health.note("clock", lambda: times.expiry.problem)
        self.health.note("deduplication", lambda: self.learner.problem)
        self.health.note("topics", lambda: topics.problem)
        self.health.note("transactions", lambda: self.snapshots.problem)
