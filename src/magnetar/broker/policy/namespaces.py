"""Tenants, namespaces, and the policies of namespaces and topics: kept in the metadata store, answered from memory.

JSON documents::

    /tenants/<tenant>                      {"v": 1, "admin_roles": [...], "clusters": [...]}
    /namespaces/<tenant>/<namespace>       {"v": 1, "bundles": 4, "created_ms": ..., "policies": {key: value, ...},
                                            "replicators": {type: {region: {...}}}}
    /topic-policies/<tenant>/<namespace>/<domain>/<topic>          {"v": 1, "policies": {key: value, ...}}

Policies are those of `policies.py`; replicators are a `ReplicatorConfig` each.  What must stay true: a namespace has a
tenant, and a topic has a namespace (a topic whose namespace is missing at a start gets it back).  Memory never shows
what is not durable.

A Pulsar client must name a namespace that exists (`require`).  Kafka has no way to make one, so a topic that a Kafka
client makes brings its tenant and namespace along (`ensure`).
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.event import AwaitedEvent, Event
from magnetar.base.names import InvalidTopicName, TopicName, check_named_entity
from magnetar.base.settings_tenancy import TenancyLimits
from magnetar.base.tasks import Tasks
from magnetar.broker.cluster.following import follow
from magnetar.broker.cluster.ownership.records import first_records, records_root
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.incarnations import Incarnations
from magnetar.broker.policy.errors import (
    InvalidNamespace,
    InvalidPolicy,
    NamespaceExists,
    NamespaceNotFound,
    ResourceGroupInUse,
    TenantExists,
    TenantNotEmpty,
    TenantNotFound,
    TooManyNamespaces,
    TooManyTenants,
    UnknownCluster,
)
from magnetar.broker.policy.layers import effective
from magnetar.broker.policy.model import (
    BUNDLE_COUNT_DEFAULT,
    CLUSTER,
    RESOURCE_GROUP,
    AuthMode,
    JsonValue,
    Level,
    Namespace,
    Policies,
    Region,
    ReplicatorConfig,
    Tenant,
)
from magnetar.broker.policy.policies import (
    SUBSCRIPTION_AUTH_MODE,
    check_quota_below_retention,
    checked,
)
from magnetar.metadata.store import ANY_VERSION, MUST_NOT_EXIST, Delete, MetadataStore, Put, Versioned

_log = logging.getLogger(__name__)

TENANTS_ROOT: Final = "/tenants/"
NAMESPACES_ROOT: Final = "/namespaces/"
TOPIC_POLICIES_ROOT: Final = "/topic-policies/"
BUNDLE_COUNT_MAX: Final = 1024
_ROLES_MAX: Final = 1024
_ROLE_CHARS_MAX: Final = 1024
_POLICIES_CACHED_MAX: Final = 100_000


class Namespaces:
    """See the module's text.  All methods but the coroutines are answered from memory.

    Two events are for parts that are made later:

    * `policies_changed`: the policies of a namespace (its name and None), or of one topic (its namespace and the
      topic); the change is complete when all parts that hear it have applied it;
    * `tenancy_changed`: what `admin_roles`, `is_admin` or `wants_own_names` say.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        clock: Clock,
        server: Policies | None = None,
        limits: TenancyLimits | None = None,
        *,
        resource_groups: Container[str] = (),
        is_shared: bool = False,
    ) -> None:
        """`resource_groups` are the names of those that there are.

        `is_shared`: other brokers of a cluster change all of this, too, and own bundles.
        """
        self.server = server or Policies()
        self._limits = limits or TenancyLimits()
        self._metadata = metadata
        self._clock = clock
        self._tenants: dict[str, Tenant] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._topic_policies: dict[TopicName, dict[str, JsonValue]] = {}
        self._effective: dict[TopicName, Policies] = {}
        self._shared: dict[str, Policies] = {}  # of a namespace's topics that have none of their own
        self._incarnations: Incarnations[TopicName] = Incarnations()
        self._changing = asyncio.Lock()  # changes are rare and small: one at a time
        self._resource_groups = resource_groups
        self.policies_changed: Final[AwaitedEvent[str, TopicName | None]] = AwaitedEvent()
        self.tenancy_changed: Final[Event[()]] = Event()
        self._is_shared = is_shared
        self._is_loaded = False
        self._unfollow: list[Callable[[], None]] = []
        self._applying = Tasks(_log)

    async def load(self, always: Iterable[str], topics: Iterable[TopicName] = ()) -> None:
        """Read what is stored; make the namespaces of `always` and those that `topics` need if they are missing."""
        for root, learn in (
            (TENANTS_ROOT, self._learn_tenant),
            (NAMESPACES_ROOT, self._learn_namespace),
            (TOPIC_POLICIES_ROOT, self._learn_topic),
        ):
            if self._is_shared:
                self._unfollow.append(await follow(self._metadata, root, learn))
            else:
                for path, stored in await self._metadata.scan(root):
                    learn(path, stored)
        self._effective.clear()  # what was asked for before
        self._shared.clear()
        self._is_loaded = True
        await self._make({*always, *(topic.namespace_name for topic in topics)}, is_limited=False)

    async def ended(self) -> None:
        """Hear nothing more of other brokers; return when what was heard has been applied."""
        for unfollow in self._unfollow:
            unfollow()
        await self._applying.ended()

    def _learn_tenant(self, path: str, stored: Versioned | None) -> None:
        name = path[len(TENANTS_ROOT) :]
        if stored is None:
            self._tenants.pop(name, None)
        else:
            self._tenants[name] = Tenant.read(name, stored.value)
        if self._is_loaded:
            self.tenancy_changed.happened()

    def _learn_namespace(self, path: str, stored: Versioned | None) -> None:
        name = path[len(NAMESPACES_ROOT) :]
        if stored is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = Namespace.read(name, stored.value)
        if self._is_loaded:
            self._forget_effective(name)
            self._applying.spawn(f"apply policies of {name}", self._apply(name, None))

    def _learn_topic(self, path: str, stored: Versioned | None) -> None:
        topic = TopicName.at(path[len(TOPIC_POLICIES_ROOT) :])
        if stored is None:
            self._topic_policies.pop(topic, None)
        else:
            self._topic_policies[topic] = json.loads(stored.value)["policies"]
        if self._is_loaded:
            self._effective.pop(topic, None)
            self._applying.spawn(f"apply policies of {topic}", self._apply(topic.namespace_name, topic))

    async def _apply(self, name: str, topic: TopicName | None) -> None:
        await self.policies_changed.happened(name, topic)

    # --- tenants -----------------------------------------------------------------------------------------------------

    @property
    def tenants(self) -> list[str]:
        return sorted(self._tenants)

    def tenant(self, name: str) -> Tenant:
        found = self._tenants.get(name)
        if found is None:
            raise TenantNotFound("Tenant does not exist")
        return found

    async def create_tenant(self, tenant: Tenant) -> None:
        """Raises TenantExists, InvalidNamespace, UnknownCluster, TooManyTenants."""
        _check_name("Tenant", "tenant", tenant.name)
        _check_tenant(tenant)
        async with self._changing:
            if tenant.name in self._tenants:
                raise TenantExists("Tenant already exist")
            self._require_room([tenant], ())
            await self._metadata.put(TENANTS_ROOT + tenant.name, tenant.encode(), MUST_NOT_EXIST)
            self._tenants[tenant.name] = tenant
            self.tenancy_changed.happened()

    async def update_tenant(self, tenant: Tenant) -> None:
        """Raises TenantNotFound, InvalidNamespace, UnknownCluster."""
        _check_tenant(tenant)
        async with self._changing:
            if tenant.name not in self._tenants:
                raise TenantNotFound(f"Tenant {tenant.name} not found")
            await self._metadata.put(TENANTS_ROOT + tenant.name, tenant.encode())
            self._tenants[tenant.name] = tenant
            self.tenancy_changed.happened()

    async def delete_tenant(self, name: str) -> None:
        """Raises TenantNotFound, TenantNotEmpty."""
        async with self._changing:
            if name not in self._tenants:
                raise TenantNotFound("Tenant doesn't exist")
            if any(namespace.tenant == name for namespace in self._namespaces.values()):
                raise TenantNotEmpty("The tenant still has active namespaces")
            await self._metadata.delete(TENANTS_ROOT + name)
            self._tenants.pop(name, None)
            self.tenancy_changed.happened()

    # --- what rights depend on (`security/decisions.py`) -------------------------------------------------------------

    def admin_roles(self, tenant: str) -> Collection[str]:
        """The roles that administer a tenant; none for a tenant that does not exist."""
        found = self._tenants.get(tenant)
        return () if found is None else found.admin_roles

    def is_admin(self, role: str) -> bool:
        """Whether a role administers any tenant."""
        return any(role in one.admin_roles for one in self._tenants.values())

    def wants_own_names(self, namespace: str) -> bool:
        """Whether subscriptions of a namespace must begin with the name of their role."""
        found = self._namespaces.get(namespace)
        return found is not None and found.policies.get(SUBSCRIPTION_AUTH_MODE) == AuthMode.PREFIX.value

    # --- namespaces --------------------------------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return name in self._namespaces

    @property
    def names(self) -> list[str]:
        """Every namespace, as `tenant/namespace`."""
        return sorted(self._namespaces)

    def names_of(self, tenant: str) -> list[str]:
        """The namespaces of a tenant; TenantNotFound."""
        if tenant not in self._tenants:
            raise TenantNotFound("Tenant not found")
        return [name for name in self.names if _tenant_of(name) == tenant]

    def require(self, name: str) -> Namespace:
        """The namespace `tenant/namespace`; NamespaceNotFound."""
        found = self._namespaces.get(name)
        if found is None:
            raise NamespaceNotFound("Namespace does not exist")
        return found

    async def create(
        self,
        name: str,
        policies: Mapping[str, JsonValue] | None = None,
        bundle_count: int = BUNDLE_COUNT_DEFAULT,
    ) -> None:
        """Make `tenant/namespace`.

        Raises:
            TenantNotFound, NamespaceExists, InvalidNamespace, InvalidPolicy, TooManyNamespaces
        """
        tenant, _, local = name.partition("/")
        _check_name("Tenant", "tenant", tenant)
        _check_name("Namespace", "namespace", local)
        if not 1 <= bundle_count <= BUNDLE_COUNT_MAX:
            raise InvalidNamespace(f"a namespace has 1 to {BUNDLE_COUNT_MAX} bundles, not {bundle_count}")
        values = {
            key: checked(key, value, Level.NAMESPACE)
            for key, value in (policies or {}).items()
            if value is not None
        }
        namespace = Namespace(name, self._clock.now_ms(), bundle_count, values)
        async with self._changing:
            self.tenant(tenant)
            if name in self._namespaces:
                raise NamespaceExists("Namespace already exists")
            self._check_group(values)
            self._require_room((), [namespace])
            await self._metadata.commit(self._puts(namespace))
            self._namespaces[name] = namespace
            self._forget_effective(name)

    def _puts(self, namespace: Namespace) -> list[Put]:
        """What stores a new namespace, with its bundles in a cluster."""
        put = Put(NAMESPACES_ROOT + namespace.name, namespace.encode(), MUST_NOT_EXIST)
        return [put, *(first_records(namespace.name, namespace.bundle_count) if self._is_shared else ())]

    async def delete(self, name: str, forget: Callable[[str], Awaitable[None]]) -> None:
        """Forget a namespace; its topics must be gone.  `forget` removes what others keep of it, before it goes.

        Raises NamespaceNotFound, and what `forget` raises: the namespace is still there.
        """
        async with self._changing:
            self.require(name)
            await forget(name)
            gone = [NAMESPACES_ROOT + name]
            if self._is_shared:
                gone += [path for path, _ in await self._metadata.scan(records_root(name))]
            await self._metadata.commit([Delete(path) for path in gone])
            self._namespaces.pop(name, None)
            self._forget_effective(name)

    async def ensure(self, names: Collection[str]) -> None:
        """Make those of `names` (`tenant/namespace`) that are missing, with their tenants, in one step.

        Raises:
            TooManyTenants, TooManyNamespaces
        """
        if not all(name in self._namespaces for name in names):
            await self._make(names, is_limited=True)

    def _require_room(self, tenants: Collection[Tenant], namespaces: Collection[Namespace]) -> None:
        limits = self._limits
        if tenants and 0 < limits.tenants < len(self._tenants) + len(tenants):
            raise TooManyTenants("Exceed the maximum number of tenants")
        if limits.namespaces_per_tenant:
            counts = Counter(
                _tenant_of(name) for name in (*self._namespaces, *(one.name for one in namespaces))
            )
            for tenant in {_tenant_of(one.name) for one in namespaces}:
                if counts[tenant] > limits.namespaces_per_tenant:
                    raise TooManyNamespaces(f"Exceed the maximum number of namespace in tenant :{tenant}")

    async def _make(self, names: Collection[str], *, is_limited: bool) -> None:
        async with self._changing:
            missing = sorted({name for name in names if name not in self._namespaces})
            if not missing:  # another request made them while we waited
                return
            now_ms = self._clock.now_ms()
            tenants = [Tenant(name) for name in sorted({_tenant_of(name) for name in missing})]
            tenants = [tenant for tenant in tenants if tenant.name not in self._tenants]
            namespaces = [Namespace(name, now_ms) for name in missing]
            if is_limited:
                self._require_room(tenants, namespaces)
            puts = [Put(TENANTS_ROOT + one.name, one.encode(), MUST_NOT_EXIST) for one in tenants]
            puts += [put for one in namespaces for put in self._puts(one)]
            await self._metadata.commit(puts)
            self._tenants.update((one.name, one) for one in tenants)
            self._namespaces.update((one.name, one) for one in namespaces)

    # --- policies ----------------------------------------------------------------------------------------------------

    def policies_of(self, topic: TopicName) -> Policies:
        """What holds for a topic, which need not exist; a look-up when it was asked for before."""
        found = self._effective.get(topic)
        if found is None:
            found = self._find_policies(topic)
            if len(self._effective) >= _POLICIES_CACHED_MAX:
                self._effective.clear()
            self._effective[topic] = found
        return found

    def _find_policies(self, topic: TopicName) -> Policies:
        own = self._topic_policies.get(topic, {})
        namespace = self._namespaces.get(topic.namespace_name)
        if own or namespace is None:
            return effective(own, namespace.policies if namespace is not None else {}, self.server)
        found = self._shared.get(namespace.name)
        if found is None:
            found = self._shared[namespace.name] = effective({}, namespace.policies, self.server)
        return found

    def topic_policies(self, topic: TopicName) -> Mapping[str, JsonValue]:
        """What was set for the topic itself, {key: JSON value}."""
        return self._topic_policies.get(topic, {})

    async def change(
        self, name: str, update: Callable[[dict[str, JsonValue]], Mapping[str, JsonValue]]
    ) -> None:
        """Replace a namespace's policies by what `update` makes of a copy of them; a value of None is none.

        Raises:
            NamespaceNotFound, InvalidPolicy: nothing has changed.
        """
        async with self._changing:
            namespace = self.require(name)
            values = _checked_all(update(dict(namespace.policies)), Level.NAMESPACE)
            check_quota_below_retention(namespace.policies, values, Level.NAMESPACE)
            self._check_group(values)
            changed = replace(namespace, policies=values)
            await self._metadata.put(NAMESPACES_ROOT + name, changed.encode())
            self._namespaces[name] = changed
            self._forget_effective(name)
        await self.policies_changed.happened(name, None)

    def replicators(self, name: str) -> Mapping[Region, ReplicatorConfig]:
        """The configurations of a namespace's replicators; none if there is no such namespace."""
        found = self._namespaces.get(name)
        return {} if found is None else found.replicators

    async def set_replicator(self, name: str, region: Region, config: ReplicatorConfig | None) -> None:
        """Replace the configuration of a region; None is none.  Raises NamespaceNotFound."""
        async with self._changing:
            namespace = self.require(name)
            configs = {key: kept for key, kept in namespace.replicators.items() if key != region}
            if config is not None:
                configs[region] = config
            changed = replace(namespace, replicators=configs)
            await self._metadata.put(NAMESPACES_ROOT + name, changed.encode())
            self._namespaces[name] = changed

    def in_group(self, group: str) -> list[str]:
        """The namespaces that are in a resource group."""
        return [one.name for one in self._namespaces.values() if one.policies.get(RESOURCE_GROUP) == group]

    async def delete_group(self, group: str, delete: Callable[[], Awaitable[None]]) -> None:
        """Have a resource group deleted that no namespace is in.  Raises ResourceGroupInUse."""
        async with self._changing:
            if self.in_group(group):
                raise ResourceGroupInUse("ResourceGroup is in use")
            await delete()

    def _check_group(self, policies: Mapping[str, JsonValue]) -> None:
        group = policies.get(RESOURCE_GROUP)
        if group is not None and group not in self._resource_groups:
            raise InvalidPolicy("ResourceGroup does not exist")

    async def change_topic(
        self, topic: TopicName, update: Callable[[dict[str, JsonValue]], Mapping[str, JsonValue]]
    ) -> None:
        """As `change`, for what is set for one topic.  Whether the topic exists is the caller's to know.

        Raises UnknownTopic, too: it was deleted meanwhile.
        """
        mark = self._incarnations.mark(topic)
        async with self._changing:
            if mark.is_void:
                raise UnknownTopic(f"Topic {topic.full} not found")
            self.require(topic.namespace_name)
            before = self._topic_policies.get(topic, {})
            values = _checked_all(update(dict(before)), Level.TOPIC)
            check_quota_below_retention(before, values, Level.TOPIC)
            path = _topic_path(topic)
            if values:
                await self._metadata.put(path, json.dumps({"v": 1, "policies": values}).encode())
                self._topic_policies[topic] = values
            elif topic in self._topic_policies:
                await self._metadata.commit([Delete(path, ANY_VERSION)])
                self._topic_policies.pop(topic, None)
            self._effective.pop(topic, None)
        await self.policies_changed.happened(topic.namespace_name, topic)

    def deletion_of(self, topic: TopicName) -> list[Delete]:
        """What belongs into the transaction that deletes the topic; `forget_topic` is called once that is durable."""
        return [Delete(_topic_path(topic), ANY_VERSION)]

    def forget_topic(self, topic: TopicName) -> None:
        """The topic was deleted: so are its policies."""
        self._topic_policies.pop(topic, None)
        self._effective.pop(topic, None)
        self._incarnations.end(topic)

    def _forget_effective(self, namespace: str) -> None:
        kept = {topic: found for topic, found in self._effective.items() if topic.namespace_name != namespace}
        self._effective = kept
        self._shared.pop(namespace, None)
        self.tenancy_changed.happened()


def _topic_path(name: TopicName) -> str:
    return TOPIC_POLICIES_ROOT + name.path


def _checked_all(values: Mapping[str, JsonValue], level: Level) -> dict[str, JsonValue]:
    return {key: checked(key, value, level) for key, value in values.items() if value is not None}


def _tenant_of(namespace: str) -> str:
    return namespace.partition("/")[0]


def _check_name(label: str, kind: str, name: str) -> None:
    try:
        check_named_entity(kind, name)
    except InvalidTopicName:
        raise InvalidNamespace(f"{label} name is not valid") from None


def _check_tenant(tenant: Tenant) -> None:
    if len(tenant.admin_roles) > _ROLES_MAX:
        raise InvalidNamespace(f"a tenant has at most {_ROLES_MAX} admin roles")
    if any(len(role) > _ROLE_CHARS_MAX for role in tenant.admin_roles):
        raise InvalidNamespace(f"a role has a name of {_ROLE_CHARS_MAX} characters at most")
    if not tenant.clusters:
        raise InvalidNamespace("Clusters cannot be empty or blank")
    if any(cluster != CLUSTER for cluster in tenant.clusters):
        raise UnknownCluster("Clusters do not exist")
