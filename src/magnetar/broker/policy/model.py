"""Tenants, namespaces, the policies in effect for a topic, the settings of a topic: values."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from magnetar.base.config import ConfigSource, ConfigType
from magnetar.base.settings_subscriptions import UnackedLimits
from magnetar.broker.cluster.bundles import boundaries_of, written
from magnetar.broker.quotas.model import Rate, SubscribeRate
from magnetar.broker.security.model import Principal

JsonValue = Any  # what json.loads gives
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


class QuotaType(Enum):
    """What a backlog quota measures."""

    SIZE = "destination_storage"
    AGE = "message_age"


class QuotaAction(Enum):
    """What happens when a backlog quota is exceeded."""

    HOLD_PRODUCERS = "producer_request_hold"
    REFUSE_PRODUCERS = "producer_exception"
    EVICT_BACKLOG = "consumer_backlog_eviction"


class Compatibility(Enum):
    """Which new schemas a topic takes (org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy)."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class AuthMode(Enum):
    """What the names of subscriptions are held to, where there is authorization."""

    NONE = "None"
    PREFIX = "Prefix"


class DeleteMode(Enum):
    """When a topic counts as inactive."""

    NO_SUBSCRIPTIONS = "delete_when_no_subscriptions"
    SUBSCRIPTIONS_CAUGHT_UP = "delete_when_subscriptions_caught_up"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long acknowledged data is kept.  -1 means without end, 0 not at all."""

    time_ms: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class BacklogQuota:
    """`limit` is bytes for `QuotaType.SIZE` and seconds for `QuotaType.AGE`; negative means none."""

    limit: int
    action: QuotaAction


@dataclass(frozen=True, slots=True)
class AutoTopicCreation:
    """`partition_count` is 0 for a topic that is not partitioned."""

    allowed: bool = True
    partition_count: int = 0


@dataclass(frozen=True, slots=True)
class DelayedDelivery:
    """Whether messages wait for the time that their producers give, and how exactly it is kept."""

    active: bool = True
    tick_ms: int = 1000


@dataclass(frozen=True, slots=True)
class InactiveTopics:
    """A topic that no client uses is deleted after `idle_s_max` seconds, if `delete` says so."""

    delete: bool = False
    mode: DeleteMode = DeleteMode.NO_SUBSCRIPTIONS
    idle_s_max: int = 60


@dataclass(frozen=True, slots=True)
class Policies:
    """What holds for one topic.  Counts and times of 0 mean no limit."""

    deduplication: bool = False
    retention: Retention | None = None  # None: the topic's Kafka settings alone say what goes
    message_ttl_s: int = 0
    backlog_quotas: Mapping[QuotaType, BacklogQuota] = field(default_factory=dict)
    schema_compatibility: Compatibility = Compatibility.FULL
    schema_validation_enforced: bool = False
    schema_auto_update: bool = True
    auto_topic_creation: AutoTopicCreation = AutoTopicCreation()
    auto_subscription_creation: bool = True
    delayed_delivery: DelayedDelivery = DelayedDelivery()
    inactive_topics: InactiveTopics = InactiveTopics()
    producers_max: int = 0
    consumers_max: int = 0
    consumers_per_subscription_max: int = 0
    subscriptions_max: int = 0
    namespace_topics_max: int = 0
    unacked_limits: UnackedLimits = field(default_factory=UnackedLimits)
    failover_delay_ms: int = 0  # until a consumer begins that takes over; the server's alone
    subscription_types: frozenset[str] = frozenset()  # of SUBSCRIPTION_TYPES; none: all of them
    encryption_required: bool = False
    publish_rate: Rate | None = None
    dispatch_rate: Rate | None = None  # of a partition, to all that read it together
    subscription_dispatch_rate: Rate | None = None
    subscription_dispatch_rates: Mapping[str, Rate | None] = field(
        default_factory=dict
    )  # of those that have their own
    replicator_dispatch_rate: Rate | None = None  # of a partition, to each of its replicators
    subscribe_rate: SubscribeRate | None = None
    subscription_expiration_minutes: int = 0
    compaction_threshold_bytes: int | None = (
        None  # that Pulsar's compaction has not looked at; None: the broker's
    )
    resource_group: str = ""  # whose rates the topic shares


SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
CONSUMER_UNACKED_MAX: Final = "max_unacked_messages_per_consumer"
SUBSCRIPTION_UNACKED_MAX: Final = "max_unacked_messages_per_subscription"
PUBLISH_RATE: Final = "publishMaxMessageRate"
DISPATCH_RATE: Final = "topicDispatchRate"
SUBSCRIPTION_DISPATCH_RATE: Final = "subscriptionDispatchRate"
REPLICATOR_DISPATCH_RATE: Final = "replicatorDispatchRate"
SUBSCRIPTION_POLICIES: Final = "subscriptionPolicies"  # by the names of subscriptions
SUBSCRIBE_RATE: Final = "clusterSubscribeRate"
RESOURCE_GROUP: Final = "resource_group_name"
RATES: Final = (
    PUBLISH_RATE,
    DISPATCH_RATE,
    SUBSCRIPTION_DISPATCH_RATE,
    REPLICATOR_DISPATCH_RATE,
    SUBSCRIBE_RATE,
)


class Level(Enum):
    """Where a policy can be set."""

    NAMESPACE = "namespace"
    TOPIC = "topic"


def whole_number(value: JsonValue) -> int | None:
    """A number of a JSON document, which may be spelt as a text, as Pulsar takes it; None for anything else."""
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return None if isinstance(value, bool) or not isinstance(value, int) else value


CLUSTER: Final = "standalone"
BUNDLE_COUNT_DEFAULT: Final = 4  # Pulsar's defaultNumberOfNamespaceBundles


@dataclass(frozen=True, slots=True)
class Tenant:
    name: str
    admin_roles: tuple[str, ...] = ()
    clusters: tuple[str, ...] = (CLUSTER,)

    def encode(self) -> bytes:
        document = {"v": 1, "admin_roles": list(self.admin_roles), "clusters": list(self.clusters)}
        return json.dumps(document).encode()

    @staticmethod
    def read(name: str, value: bytes) -> "Tenant":
        """What `encode` returned."""
        document = json.loads(value)
        return Tenant(name, tuple(document["admin_roles"]), tuple(document["clusters"]))


REPLICATION_PROPERTIES: Final = "replicationProperties"
REPLICATION_KEY_STORE: Final = "authParamStorePluginName"
REPLICATION_MAPPING: Final = "topicNameMapping"


class Region(NamedTuple):
    """A type of targets and one of its regions: what one configuration is about."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class ReplicatorConfig:
    """What a namespace says of its replicators to one type and region of targets.  Stored with its policies:

        {"replicationProperties": {...}, "authParamStorePluginName": "sealed", "topicNameMapping": {"orders": "copy"},
         "owner": ["User", "alice"], "created_ms": ..., "keys": "...", "deregistered": ["<id of a topic>"],
         "removed": false}

    Credentials are never part of it: a key store has them, in a place that `keys` names, empty without credentials.
    `owner` has added it, and its replicators act for the owner.  `deregistered` are the ids (hexadecimal) of mapped
    topics that a user has taken out.  `is_removed`: a user has removed it, and what is left of it goes.
    """

    region: Region
    properties: Mapping[str, Any]
    topic_names: Mapping[str, str]
    key_store: str
    owner: Principal
    created_ms: int
    keys: str = ""
    deregistered: frozenset[str] = field(default_factory=frozenset)
    is_removed: bool = False

    def document(self) -> dict[str, Any]:
        return {
            REPLICATION_PROPERTIES: dict(self.properties),
            REPLICATION_KEY_STORE: self.key_store,
            REPLICATION_MAPPING: dict(self.topic_names),
            "owner": [self.owner.kind, self.owner.name],
            "created_ms": self.created_ms,
            "keys": self.keys,
            "deregistered": sorted(self.deregistered),
            "removed": self.is_removed,
        }

    @classmethod
    def of(cls, region: Region, document: Mapping[str, Any]) -> "ReplicatorConfig":
        return cls(
            region,
            document[REPLICATION_PROPERTIES],
            document[REPLICATION_MAPPING],
            document[REPLICATION_KEY_STORE],
            Principal(*document["owner"]),
            document["created_ms"],
            document["keys"],
            frozenset(document["deregistered"]),
            document["removed"],
        )


def stored_replicators(configs: Mapping[Region, ReplicatorConfig]) -> dict[str, dict[str, Any]]:
    """As the namespace's document has them."""
    found: dict[str, dict[str, Any]] = {}
    for (kind, region), config in configs.items():
        found.setdefault(kind, {})[region] = config.document()
    return found


def read_replicators(document: Mapping[str, Mapping[str, Any]]) -> dict[Region, ReplicatorConfig]:
    """What `stored_replicators` returned."""
    regions = [Region(kind, name) for kind, names in document.items() for name in names]
    return {region: ReplicatorConfig.of(region, document[region.type][region.name]) for region in regions}


@dataclass(frozen=True, slots=True)
class Namespace:
    """`name` is `tenant/namespace`; `policies` are those set for it, {key: JSON value}."""

    name: str
    created_ms: int
    bundle_count: int = BUNDLE_COUNT_DEFAULT
    policies: Mapping[str, JsonValue] = field(default_factory=dict)
    replicators: Mapping[Region, ReplicatorConfig] = field(default_factory=dict)

    @property
    def tenant(self) -> str:
        return self.name.partition("/")[0]

    @property
    def bundle_boundaries(self) -> list[str]:
        """Where the namespace's parts of the hash space begin and end, as Pulsar writes them."""
        return [written(boundary) for boundary in boundaries_of(self.bundle_count)]

    def encode(self) -> bytes:
        document = {
            "v": 1,
            "bundles": self.bundle_count,
            "created_ms": self.created_ms,
            "policies": dict(self.policies),
            "replicators": stored_replicators(self.replicators),
        }
        return json.dumps(document).encode()

    @staticmethod
    def read(name: str, value: bytes) -> "Namespace":
        """What `encode` returned."""
        document = json.loads(value)
        return Namespace(
            name,
            document["created_ms"],
            document["bundles"],
            document["policies"],
            read_replicators(document.get("replicators", {})),  # none before there were replicators
        )


class AlterOperation(IntEnum):
    """IncrementalAlterConfigs' operations, with their numbers on the wire (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One entry of an IncrementalAlterConfigs request."""

    name: str
    operation: AlterOperation
    value: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key as DescribeConfigs shows it.  `synonyms` begins with whatever gives the value."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]
    read_only: bool = False
    sensitive: bool = False


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The effective values that something in the server acts on.  Negative limits mean none."""

    compact: bool
    delete: bool
    max_message_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    compaction_lag_min_ms: int
    compaction_lag_max_ms: int
    dirty_share_min: float
    delete_retention_ms: int
