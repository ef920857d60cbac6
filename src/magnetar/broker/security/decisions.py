"""Who may do what by the rules, answered from memory: an `Authorizer`.

It decides in this order, which is that of Kafka's `StandardAuthorizer`, with Pulsar's roles in it:

1. A super user may do everything.
2. A rule that denies goes before every rule that allows, whatever their patterns.
3. READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS: where they allow, not where
   they deny.
4. An administrator of a tenant may do everything to what is in it, but unload a namespace.
5. If no rule is about the question, the answer is no; with `open_without_rules` it is yes.

If a proxy acts for a client, both are asked about, each by itself, as Pulsar's broker does.

For two types of resources, rights to others decide.  To read a subscription of a topic, a caller must also have the
right to read the topic.  If the namespace asks for it, the subscription's name must begin with the caller's name.  If
rules of a namespace or a topic name a subscription, it is for the principals of these rules only; rules for every
subscription there do not apply to it.  A change of a pipeline runs programs on the server, so it takes ALTER on the
cluster; to look at a pipeline takes DESCRIBE on the cluster.

A group is a subscription at home in `home`, the namespace of Kafka's clients: what a namespace's rules say of every
subscription holds for groups there.

Rules are kept by target, and what they say of one principal is two masks of operations.  To find the targets of a
resource, the code makes one look-up for its name, one for its namespace, and one for each length that a prefix has.  It
keeps the result until a rule changes.  Then a question costs a look-up for each target and each name that the caller
goes by.  What a principal may do with a topic is kept as bits, unless rules name hosts: then a question is one look-up.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple, Protocol, TypeVar

from magnetar.base.names import PERSISTENT
from magnetar.broker.security.model import (
    CLUSTER,
    USER,
    Caller,
    Operation,
    Principal,
    Resource,
    ResourceType,
)
from magnetar.broker.security.rule import (
    EVERY_HOST,
    EVERY_USER,
    Pattern,
    Rule,
    Target,
    fits_glob,
    is_glob,
    namespace_of,
    of_user,
)

_K = TypeVar("_K")
_V = TypeVar("_V")

_KEPT_MAX: Final = 65_536  # resources, and principals, that were asked about
# In front of the name under which a rule is kept that Pulsar's side wrote with a star in it: no principal begins so.
_ROLE: Final = ":"

_TOPIC, _SUBSCRIPTION = ResourceType.TOPIC, ResourceType.SUBSCRIPTION
_DESCRIBE: Final = 1 << Operation.DESCRIBE
_IMPLY_DESCRIBE: Final = sum(
    1 << one for one in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
)
_EVERYTHING: Final = sum(1 << one for one in Operation)


class Masks:
    """What a target's rules say about one principal: bits of operations, for every host and for single ones."""

    __slots__ = ("allow", "deny", "hosts")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.allow = self.deny = 0
        self.hosts: dict[str, tuple[int, int]] | None = None
        for rule in rules:
            mask = _EVERYTHING if rule.operation is Operation.ALL else 1 << rule.operation
            allow, deny = (_with_implied(mask), 0) if rule.allow else (0, mask)
            if rule.host == EVERY_HOST:
                self.allow |= allow
                self.deny |= deny
            else:
                self.hosts = self.hosts or {}
                before = self.hosts.get(rule.host, (0, 0))
                self.hosts[rule.host] = (before[0] | allow, before[1] | deny)

    def at(self, host: str) -> tuple[int, int]:
        """What is allowed, and what is denied, for a caller at `host`."""
        if self.hosts is None or host not in self.hosts:
            return self.allow, self.deny
        allow, deny = self.hosts[host]
        return self.allow | allow, self.deny | deny


def _with_implied(mask: int) -> int:
    if mask & _IMPLY_DESCRIBE:
        mask |= _DESCRIBE
    if mask & 1 << Operation.ALTER_CONFIGS:
        mask |= 1 << Operation.DESCRIBE_CONFIGS
    return mask


_Table = dict[str, Masks]  # by principal, as `_key` names it


class _Found(NamedTuple):
    """What matters for one resource: the tables of its targets, the administrators of its tenant, and whether a
    subscription's name must begin with the caller's.
    """

    tables: tuple[_Table, ...]
    admins: Collection[str]
    wants_own_name: bool = False


def _decide(found: _Found, keys: tuple[str, ...], host: str, operation: Operation, is_open: bool) -> bool:
    """By what concerns the resource; `is_open` is the answer where there is no rule."""
    tables, admins, _ = found
    bit = 1 << operation
    allowed = 0
    for table in tables:
        for key in keys:
            masks = table.get(key)
            if masks is not None:
                allow, deny = (masks.allow, masks.deny) if masks.hosts is None else masks.at(host)
                if deny & bit:
                    return False
                allowed |= allow
    if allowed & bit or keys[0] in admins:
        return True
    return is_open and not tables


def _mask(found: _Found, keys: tuple[str, ...], is_open: bool) -> int | None:
    """What `_decide` allows, as bits of operations; None if that depends on the caller's host."""
    tables, admins, _ = found
    allowed = _EVERYTHING if keys[0] in admins or (is_open and not tables) else 0
    denied = 0
    for table in tables:
        for key in keys:
            masks = table.get(key)
            if masks is not None:
                if masks.hosts is not None:
                    return None
                allowed |= masks.allow
                denied |= masks.deny
    return allowed & ~denied


class Tenancy(Protocol):
    """What tenants and namespaces say; when that changes, `Rules` calls `Decisions.forget`."""

    def admin_roles(self, tenant: str) -> Collection[str]:
        """The roles that administer a tenant; none if the tenant does not exist."""
        ...

    def is_admin(self, role: str) -> bool:
        """Whether a role administers any tenant."""
        ...

    def wants_own_names(self, namespace: str) -> bool:
        """Whether subscriptions of a namespace must begin with the name of their role."""
        ...


class Decisions:
    """See the module's text.  `super_users` are `kind:name`, `home` is the namespace of Kafka's clients."""

    def __init__(
        self,
        super_users: Collection[str],
        home: str,
        tenancy: Tenancy,
        *,
        open_without_rules: bool = False,
        with_wildcards: bool = False,
    ) -> None:
        self.super_users = frozenset(super_users)
        self.home = home
        self._open = open_without_rules
        self.with_wildcards = with_wildcards
        self._tenancy = tenancy
        self._rules: dict[Target, dict[str, dict[Rule, None]]] = {}
        self._naming_hosts = 0
        self._tables: dict[Target, _Table] = {}
        self._lengths: dict[ResourceType, dict[int, int]] = {}  # of prefixes, and how many have each
        self._targets: dict[str, dict[Target, None]] = {}  # with rules of a principal
        self._globs: dict[str, int] = {}  # roles with stars, and how many targets have rules of each
        self._topics: dict[str, _Found] = {}
        # What principals, wherever they are, may do with topics; by principal, as that costs less than pairs as keys.
        self._masks: dict[Principal, dict[str, int]] = {}
        self._masks_kept = 0
        self._others: dict[Resource, _Found] = {}
        self._keys: dict[Principal, tuple[str, ...]] = {}
        # By tenant: what is found for its topics shares this, or a long list would be kept once for each of them.
        self._admins_of: dict[str, frozenset[str]] = {}

    # --- rules -------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Rule]:
        for by_key in self._rules.values():
            for rules in by_key.values():
                yield from rules

    def __contains__(self, rule: object) -> bool:
        if not isinstance(rule, Rule):
            return False
        return rule in self._rules.get(rule.target, {}).get(self._key(rule), ())

    def of(self, target: Target) -> Iterator[Rule]:
        """The rules on one target."""
        for rules in self._rules.get(target, {}).values():
            yield from rules

    def scoped(self, scope: str) -> Iterator[Rule]:
        """The rules on subscriptions of a namespace, or of a topic."""
        for target in self._rules:
            if target.scope == scope and target.type is _SUBSCRIPTION:
                yield from self.of(target)

    def change(self, added: Iterable[Rule] = (), removed: Iterable[Rule] = ()) -> None:
        """Add and remove rules; from now on they decide."""
        touched: dict[tuple[Target, str], None] = {}
        for rule in removed:
            key = self._key(rule)
            if self._rules.get(rule.target, {}).get(key, {}).pop(rule, self) is None:
                self._naming_hosts -= rule.host != EVERY_HOST
                touched[rule.target, key] = None
        for rule in added:
            key = self._key(rule)
            rules = self._rules.setdefault(rule.target, {}).setdefault(key, {})
            self._naming_hosts += rule.host != EVERY_HOST and rule not in rules
            rules[rule] = None
            touched[rule.target, key] = None
        for target, key in touched:
            self._compile(target, key)
        self.forget()

    def forget(self) -> None:
        """Drop everything that was looked up: rules, tenants or namespaces have changed."""
        self._topics.clear()
        self._masks.clear()
        self._masks_kept = 0
        self._others.clear()
        self._keys.clear()
        self._admins_of.clear()

    def _key(self, rule: Rule) -> str:
        name = rule.principal.partition(":")[2]
        return _ROLE + name if rule.is_role and self.with_wildcards and is_glob(name) else rule.principal

    def _compile(self, target: Target, key: str) -> None:
        by_key = self._rules[target]
        rules = by_key.get(key)
        table = self._tables.get(target)
        if rules:
            if table is None:
                table = self._tables[target] = {}
                self._count(target, 1)
            if key not in table:
                self._targets.setdefault(key, {})[target] = None
                if key.startswith(_ROLE):
                    self._globs[key] = self._globs.get(key, 0) + 1
            table[key] = Masks(rules)
            return
        by_key.pop(key, None)
        if not by_key:
            del self._rules[target]
        if table is None or key not in table:
            return
        del table[key]
        if not table:
            del self._tables[target]
            self._count(target, -1)
        del self._targets[key][target]
        if not self._targets[key]:
            del self._targets[key]
            self._globs.pop(key, None)

    def _count(self, target: Target, step: int) -> None:
        if target.pattern is not Pattern.PREFIXED:
            return
        lengths = self._lengths.setdefault(target.type, {})
        size = len(target.name)
        lengths[size] = lengths.get(size, 0) + step
        if not lengths[size]:
            del lengths[size]

    # --- questions ---------------------------------------------------------------------------------------------------

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        if caller.proxy is not None and not self.allows(caller.proxy, operation, resource):
            return False
        kind, name, topic = resource
        if kind is _TOPIC:  # with every request: one look-up, once it was asked before
            masks = self._masks.get(caller.principal)
            if masks is not None:
                mask = masks.get(name)
                if mask is not None:
                    return mask >> operation & 1 == 1
        keys = self._keys.get(caller.principal)
        if keys is None:
            keys = self._identify(caller.principal)
        if not keys:
            return True
        if kind is _TOPIC:
            found = self._topics.get(name)
            if found is None:
                found = self._find_topic(name)
            mask = _mask(found, keys, self._open)
            if mask is None:
                return _decide(found, keys, caller.host, operation, self._open)
            self._keep_mask(caller.principal, name, mask)
            return bool(mask >> operation & 1)
        if kind is _SUBSCRIPTION and topic:
            of_topic = Resource(_TOPIC, topic)
            if not self.allows(caller, Operation.READ, of_topic):
                return False
        elif kind is ResourceType.PIPELINE:
            looks = operation is Operation.DESCRIBE
            operation = Operation.DESCRIBE if looks else Operation.ALTER
            resource = CLUSTER
        found = self._others.get(resource)
        if found is None:
            found = self._find(resource)
        is_admin = keys[0] in found.admins
        if found.wants_own_name and not is_admin and not name.startswith(caller.principal.name):
            return False
        if kind is ResourceType.NAMESPACE and operation is Operation.ALTER:
            return False  # an unload is felt by all tenants
        return _decide(found, keys, caller.host, operation, self._open)

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        """As Kafka's `authorizeByResourceType`: a rule that allows counts unless one that covers it denies."""
        if caller.proxy is not None and not self.allows_any(caller.proxy, operation, kind):
            return False
        keys = self._keys.get(caller.principal) or self._identify(caller.principal)
        if not keys:
            return True
        bit = 1 << operation
        for key in keys:
            for target in self._targets.get(key, ()):
                if target.type is kind and self._tables[target][key].at(caller.host)[0] & bit:
                    covering = (self._tables[one] for one in self._covering(target))
                    if not _denied(covering, keys, caller.host, bit):
                        return True
        if kind is _TOPIC and caller.principal.kind == USER and self._tenancy.is_admin(caller.principal.name):
            return True
        if not self._open:
            return False
        every = Target(kind, Pattern.EVERY, scope=self.home if kind is _TOPIC else "")
        return not _denied((self._tables.get(every, {}),), keys, caller.host, bit)

    @property
    def tells_hosts_apart(self) -> bool:
        return self._naming_hosts > 0

    # --- inside ------------------------------------------------------------------------------------------------------

    def _keep_mask(self, principal: Principal, topic: str, mask: int) -> None:
        if self._masks_kept >= _KEPT_MAX:
            self._masks.clear()
            self._masks_kept = 0
        self._masks_kept += 1
        self._masks.setdefault(principal, {})[topic] = mask

    def _identify(self, principal: Principal) -> tuple[str, ...]:
        """The names of a principal in rules; none for a principal that may do everything."""
        text = str(principal)
        if text in self.super_users:
            keys: tuple[str, ...] = ()
        elif principal.kind == USER:
            globs = (key for key in self._globs if fits_glob(key.removeprefix(_ROLE), principal.name))
            # A user may be called `*`: to look under that name twice changes nothing.
            keys = (text, EVERY_USER, *globs)
        else:
            keys = (text,)
        _keep(self._keys, principal, keys)
        return keys

    def _find_topic(self, name: str) -> _Found:
        tenant = namespace_of(name).partition("/")[0]
        found = _Found(self._tables_of(Resource(_TOPIC, name)), self._admins(tenant))
        _keep(self._topics, name, found)
        return found

    def _find(self, resource: Resource) -> _Found:
        kind, name, topic = resource
        admins: Collection[str] = ()
        wants_own_name = False
        if kind is ResourceType.TENANT:
            admins = self._admins(name)
        elif kind is ResourceType.NAMESPACE:
            admins = self._admins(name.partition("/")[0])
        elif kind is _SUBSCRIPTION:
            namespace = namespace_of(topic) if topic else self.home
            wants_own_name = self._tenancy.wants_own_names(namespace)
            admins = self._admins(namespace.partition("/")[0])
        found = _Found(self._tables_of(resource), admins, wants_own_name)
        _keep(self._others, resource, found)
        return found

    def _admins(self, tenant: str) -> Collection[str]:
        found = self._admins_of.get(tenant)
        if found is None:
            found = frozenset(map(of_user, self._tenancy.admin_roles(tenant)))
            if found:  # names of tenants that do not exist would fill it
                self._admins_of[tenant] = found
        return found

    def _tables_of(self, resource: Resource) -> tuple[_Table, ...]:
        return tuple(self._tables[target] for target in self._targets_of(resource))

    def _targets_of(self, resource: Resource) -> Iterator[Target]:
        """The targets with rules that match a resource."""
        kind, name, topic = resource
        if kind is ResourceType.NAMESPACE:
            # What holds for every topic in it; for topics that store nothing, too, or not.
            yield from self._there(Target(_TOPIC, Pattern.EVERY, scope=name))
            yield from self._prefixes(_TOPIC, f"{PERSISTENT}{name}/")
        elif kind is _TOPIC:
            yield from self._there(Target(kind, Pattern.LITERAL, name))
            yield from self._there(Target(kind, Pattern.EVERY, scope=namespace_of(name)))
            yield from self._prefixes(kind, name)
        else:
            yield from self._there(Target(kind, Pattern.LITERAL, name))
            yield from self._there(Target(kind, Pattern.EVERY))
            yield from self._prefixes(kind, name)
            if kind is _SUBSCRIPTION:
                scopes = (namespace_of(topic), topic) if topic else (self.home,)
                named = [
                    one for scope in scopes for one in self._there(Target(kind, Pattern.LITERAL, name, scope))
                ]
                if named:
                    yield from named
                else:
                    for scope in scopes:
                        yield from self._there(Target(kind, Pattern.EVERY, scope=scope))

    def _covering(self, target: Target) -> Iterator[Target]:
        """The targets with rules that cover all of another target, including itself."""
        yield from self._there(target)
        if target.type is _TOPIC:
            if target.pattern is Pattern.EVERY:
                return  # no prefix covers topics of both domains
            namespace = namespace_of(target.name)
            if namespace.count("/") == 1:
                yield from self._there(Target(_TOPIC, Pattern.EVERY, scope=namespace))
        else:
            yield from self._there(Target(target.type, Pattern.EVERY, scope=target.scope))
        if target.pattern is not Pattern.EVERY:
            yield from self._prefixes(target.type, target.name)

    def _there(self, target: Target) -> Iterator[Target]:
        if target in self._tables:
            yield target

    def _prefixes(self, kind: ResourceType, name: str) -> Iterator[Target]:
        for size in self._lengths.get(kind, ()):
            if size <= len(name):
                target = Target(kind, Pattern.PREFIXED, name[:size])
                if target in self._tables:
                    yield target


def _keep(found: dict[_K, _V], key: _K, value: _V) -> None:
    if len(found) >= _KEPT_MAX:
        found.clear()
    found[key] = value


def _denied(tables: Iterable[_Table], keys: tuple[str, ...], host: str, bit: int) -> bool:
    return any(key in table and table[key].at(host)[1] & bit for table in tables for key in keys)
