"""The broker: puts together what all protocols share, and starts and stops it.

Its constructor makes each part from those above it, so the order says what needs what.  Rooms with wiring of their own
make their parts themselves (`room.py`).

Doors do not get this object: they get its `cases` (`usecases/cases.py`), each of which asks for the caller's right.
"""

from functools import partial
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.names import DEFAULT_NAMESPACE, DEFAULT_TENANT
from magnetar.base.times import Times
from magnetar.broker.cluster.model import Nodes
from magnetar.broker.cluster.placement import Placement
from magnetar.broker.cluster.seat import Seat
from magnetar.broker.groups.catalogue import RegistryCatalogue
from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.history.replicator_rates import ReplicatorRates
from magnetar.broker.history.segments import SegmentCatalogue
from magnetar.broker.history.stored_records import StoredRecords
from magnetar.broker.interop.interop import Interop
from magnetar.broker.interop.lookups import TimeLookups
from magnetar.broker.jobs.functions import FunctionRights
from magnetar.broker.jobs.links import Links
from magnetar.broker.jobs.room import JobRoom
from magnetar.broker.log.opening import Opener
from magnetar.broker.policy.dynamic_config import BrokerConfigs
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.policy.topic_config import TopicDefaults
from magnetar.broker.producers.admission import Producers
from magnetar.broker.producers.ids import ProducerIds
from magnetar.broker.quotas.admission import Admission
from magnetar.broker.quotas.client_quotas import ClientQuotas
from magnetar.broker.quotas.resource_groups import ResourceGroups
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.security.audit import Audit
from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.authorizer import Authorizer
from magnetar.broker.security.room import SecurityRoom
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.subscriptions.limits import SubscriptionLimits
from magnetar.broker.subscriptions.pending_acks import PendingAcks
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.subscriptions.share.dead_letters import DeadLetters
from magnetar.broker.subscriptions.share.sessions import ShareSessions
from magnetar.broker.subscriptions.volatile import VolatileSubscriptions
from magnetar.broker.telemetry.clients import TelemetryClients
from magnetar.broker.telemetry.subscriptions import TelemetrySubscriptions
from magnetar.broker.topics.internal import CONSUMER_OFFSETS, TRANSACTION_STATE
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.kafka_names import KafkaTopicNames
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.transactions.coordination import Coordination
from magnetar.broker.transactions.coordinator import TransactionCoordinator
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions
from magnetar.broker.transactions.registry import TransactionRegistry
from magnetar.broker.upkeep import producer_limit
from magnetar.broker.upkeep.cluster_part import ClusterPart
from magnetar.broker.upkeep.namespace_remains import NamespaceRemains
from magnetar.broker.upkeep.room import UpkeepRoom
from magnetar.broker.upkeep.topic_traces import TopicTraces
from magnetar.broker.upkeep.topics_in_use import TopicsInUse
from magnetar.broker.usecases.composition import compose
from magnetar.broker.usecases.functions import may_run, may_write
from magnetar.broker.usecases.sasl import BearerOf
from magnetar.broker.usecases.standing import Standing
from magnetar.ledger.cursor_store import CursorStore
from magnetar.ledger.entry_cache import EntryCache
from magnetar.ledger.entry_format import decode_entry
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.metadata.store import MetadataStore
from magnetar.storage.store import LedgerStore

DEFAULT_NAMESPACE_NAME: Final = f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}"
_CONVERTED_SHARE: Final = 8  # of the entry cache's size, for what is kept in each protocol's form


class Broker:
    """See the module's text.  `start` makes it."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: LedgerStore,
        metadata: MetadataStore,
        clock: Clock,
        nodes: Nodes,
        authorizer: Authorizer | None = None,
        authentication: Authentication | None = None,
        bearer_of: BearerOf | None = None,
        audit: Audit | None = None,
        seat: Seat | None = None,
    ) -> None:
        """`authorizer` decides instead of the rules that `settings.authorization` asks for.

        `authentication` identifies clients of Pulsar's door and of HTTP, and the tokens that Kafka's clients send by
        PLAIN; without it clients of these two need not log in.  `bearer_of` begins logins by OAUTHBEARER, at
        listeners that accept them.  Without `audit` there is no audit log.  `seat` is the broker's in a cluster.
        """
        self.settings = settings
        self.store = store
        self.metadata = metadata
        self.clock = clock
        self.nodes, self.seat = nodes, seat
        self.kafka_names = KafkaTopicNames(settings.tenant, settings.namespace)
        self.cache = EntryCache(settings.entry_cache_bytes)
        self._environment = LedgerEnvironment(store, metadata, self.cache, clock, decode_entry)
        times, commits = Times.by(clock), SharedCommits(metadata)
        self.upkeep, self.expiry_time = times.upkeep, times.expiry

        # Quotas, policies, security.
        self.client_quotas = ClientQuotas(metadata, clock)
        self.resource_groups = ResourceGroups(metadata, clock)
        self.admission = Admission(clock, self.client_quotas)
        self.broker_configs = BrokerConfigs(
            metadata,
            settings.given,
            settings.own_connections,
            nodes.only_id,
            settings.kafka_listeners,
            self.admission.govern,
        )
        self.namespaces = Namespaces(
            metadata,
            clock,
            settings.policies,
            settings.tenancy,
            resource_groups=self.resource_groups,
            is_shared=seat is not None,
        )
        policies_of = self.namespaces.policies_of
        security = SecurityRoom(
            settings.authorization,
            settings.delegation_tokens,
            metadata,
            times,
            self.namespaces,
            self.kafka_names.home,
            audit,
            authorizer,
        )
        access = security.access
        self.scram, self.delegation_tokens = security.scram, security.delegation_tokens
        self.rules = security.rules
        self.standing = Standing(security.rights_changed, has_rules=self.rules is not None)

        # Topics, and who writes them.  A partition asks tables of rooms above, which these fill later.
        limits = SubscriptionLimits(clock, policies_of)
        volatile = VolatileSubscriptions(clock, limits)
        transactions = TransactionRegistry(settings.transactions.max_transactions_per_coordinator)
        self.topics = TopicRegistry(
            self._environment,
            Placement(nodes, settings.partition_count_default, settings.replication_factor_default),
            TopicDefaults(settings.topic_defaults),
            self.namespaces,
            make_partition=volatile.make_partition,
            is_in_transaction=transactions.is_in_transaction,
            seat=seat,
        )
        self.links = Links(metadata, self.topics)
        self.schemas = SchemaRegistry(metadata, clock, policies_of, self.links.is_linked)
        self.producers = Producers(metadata)
        self.producer_ids = ProducerIds(metadata)
        self.opener = Opener()
        self.interop = Interop(
            settings.entry_cache_bytes // _CONVERTED_SHARE, settings.pulsar_message_bytes_max, self.opener
        )
        self.time_lookups = TimeLookups(clock, self.interop, self.opener)

        # Groups and subscriptions.
        self.cursors = CursorStore(metadata, commits, self.topics.identity)
        self.groups = GroupCoordinator(
            times,
            metadata,
            self.cursors,
            commits,
            RegistryCatalogue(self.topics, self.kafka_names, self.standing),
            settings.groups,
            canonical_topic=self.kafka_names.full_name_or_itself,
        )
        pending = PendingAcks()
        self.subscriptions = Subscriptions(
            times,
            self.cursors,
            self.interop.pulsar_form,
            self.groups.consumes,
            volatile,
            limits,
            pending,
            settings.entry_cache_bytes,
        )
        self.subscription_admin = SubscriptionAdmin(self.cursors, self.subscriptions, self.groups.consumes)
        self.telemetry_subscriptions = TelemetrySubscriptions(metadata)
        self.telemetry = TelemetryClients(self.telemetry_subscriptions, clock)

        # Transactions.
        coordination = Coordination(
            times, metadata, commits, self.producer_ids, self.topics.find_partition, settings.transactions
        )
        self.transactions = TransactionCoordinator(coordination, self.groups.offsets, transactions)
        self.pulsar_transactions = PulsarTransactions(coordination, self.cursors, pending)

        # What Kafka's clients see of topics.
        self.kafka_topics = KafkaTopics(
            self.topics,
            self.kafka_names,
            settings.cluster_id,
            {
                CONSUMER_OFFSETS: self.groups.has_groups,
                TRANSACTION_STATE: self.transactions.has_transactions,
            },
        )
        dead_letters = DeadLetters(
            clock,
            self.topics,
            self.kafka_topics,
            self.interop,
            self.opener,
            settings.groups.errors_deadletterqueue_topic_name_prefix,
            makes_topics=settings.groups.errors_deadletterqueue_auto_create_topics_enable,
        )
        self.share_sessions = ShareSessions(
            clock,
            self.subscriptions,
            dead_letters,
            self.groups.configs.sharing,
            settings.groups.group_share_max_share_sessions,
        )

        # History, and jobs.
        self.segments = SegmentCatalogue(
            store, self.kafka_topics.get, self.kafka_names.shown, self.time_lookups
        )
        self.stored_records = StoredRecords(clock, self.interop)
        self.replicator_rates = ReplicatorRates(clock, policies_of)
        jobs = JobRoom(
            settings.jobs,
            metadata,
            clock,
            self.namespaces,
            self.topics,
            self.cursors,
            self.subscription_admin,
            FunctionRights(partial(may_run, access), partial(may_write, access), security.rights_changed),
        )
        self.pipelines, self.functions, self.replicators = jobs.pipelines, jobs.functions, jobs.replicators

        # Upkeep.
        upkeep = UpkeepRoom(
            settings.upkeep,
            times,
            self._environment,
            commits,
            TopicsInUse(self.topics, self.namespaces, self.producers, self.subscriptions, self.cursors),
            TopicTraces(
                self.namespaces, self.schemas, self.kafka_topics, self.cursors, self.pipelines, self.links
            ),
            groups=self.groups,
            pipelines=self.pipelines,
            resource_groups=self.resource_groups,
            subscription_admin=self.subscription_admin,
        )
        self.health, self.rates, self.learner = upkeep.health, upkeep.rates, upkeep.learner
        self.housekeeping, self.retention, self.snapshots = (
            upkeep.housekeeping,
            upkeep.retention,
            upkeep.snapshots,
        )
        self.compactor, self.compaction = upkeep.compactor, upkeep.compaction
        self.beside, self.thresholds = upkeep.beside, upkeep.thresholds
        self.delete_topic, self.unload = upkeep.deletion.delete, upkeep.clients.send_away
        self.connected_clients = upkeep.connected.count
        self._limits, self._producer_limit = upkeep.limits, upkeep.producer_limit
        self._stored_time = upkeep.stored_time
        self.pulsar_topics = PulsarTopics(
            self.topics,
            self.namespaces,
            self.delete_topic,
            NamespaceRemains(self.replicators, self.rules).forget,
            self.connected_clients,
            clock.monotonic,
        )
        self.part = None if seat is None else ClusterPart(seat, self)
        self.cases = compose(self, access, security.audit, authentication, bearer_of)

    async def start(self) -> None:
        """Load what is stored.  When this returns, partitions with data are ready, and idempotent producers are
        known.
        """
        await self._stored_time.load()
        await self.scram.load()
        await self.delegation_tokens.load()
        await self.client_quotas.load()
        await self.resource_groups.load()
        await self.telemetry_subscriptions.load()
        await self.broker_configs.load()
        await self._environment.load()
        await self.topics.load()
        await self.links.load()
        await self.namespaces.load(
            {DEFAULT_NAMESPACE_NAME, self.kafka_names.home},
            [topic.name for topic in self.topics],
        )
        await self._limits.apply_to(list(self.topics))
        if self.rules is not None:
            await self.rules.load()
        await self.schemas.load()
        await self.topics.go_on_deleting(await self.cursors.load())
        await self.groups.start()
        await self.pipelines.load()
        await self.functions.load()
        # Before logs are read for their producers: there may be any number of them.
        self.upkeep.every(producer_limit.INTERVAL_S, "producers' number", self._producer_limit.enforce)
        await self.snapshots.recover()
        await self.transactions.load()  # after the partitions know who has a transaction open in them
        await self.pulsar_transactions.load()
        await self.replicators.load()
        self.rates.start()
        self.housekeeping.start()
        self.subscriptions.start()
        self.delegation_tokens.start(self.upkeep)
        self._stored_time.start()
        self.snapshots.start()
        self.retention.start()
        self.compaction.start()
        self.thresholds.start()
        if self.part is not None:
            self.part.start(self.upkeep)

    async def stop(self) -> None:
        """Finish what is queued and leave everything on disk.  The stores stay open; their owner closes them."""
        if self.part is not None:
            await self.part.stop()
        await self.health.close()
        await self.upkeep.stop()
        await self.learner.close()
        await self.replicators.ended()
        await self.transactions.close()
        await self.pulsar_transactions.close()
        await self.share_sessions.close()
        await self.subscriptions.close()
        self.interop.close()
        self.opener.close()
        await self.beside.close()
        await self.groups.close()
        self.topics.close()
        await self.namespaces.ended()
        self._environment.tombstones.close()
        if self.rules is not None:
            await self.rules.ended()
        await self.standing.close()
        await self.producers.ended()
        await self._environment.tasks.ended()
        await self.snapshots.store_changed()
        await self._stored_time.store()
