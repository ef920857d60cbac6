"""The server's settings, checked and typed: `ServerSettings`.

Five layers, each over the one before it: defaults, a properties file, the environment (`MAGNETAR_NUM_PARTITIONS` for
`num.partitions`), `--set key=value`, flags.  Within one layer a setting may have several of its names, but not
different values.  No key is required; every mistake is one `ConfigError` with one sentence.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from magnetar.base.errors import ConfigError
from magnetar.base.limits import memory_bytes
from magnetar.base.listeners import (
    PORT_MAX,
    Listener,
    check_addresses,
    parse_advertised,
    parse_listeners,
    parse_protocol_map,
    parse_pulsar_url,
)
from magnetar.base.masking import HIDDEN
from magnetar.base.names import InvalidTopicName, check_named_entity
from magnetar.base.paths import absolute_path
from magnetar.base.properties import parse_properties
from magnetar.base.pulsar_listeners import (
    BIND_ADDRESSES,
    PULSAR_LISTENER_KEYS,
    PulsarListeners,
    parse_pulsar_listeners,
)
from magnetar.base.server_key import Section
from magnetar.base.settings_audit import AuditSettings, audit
from magnetar.base.settings_authentication import (
    AUTHENTICATION_NAMES,
    TLS,
    AuthenticationSettings,
    authentication,
)
from magnetar.base.settings_authorization import AUTHORIZATION_NAMES, AuthorizationSettings, authorization
from magnetar.base.settings_compaction import CompactionSettings, compaction
from magnetar.base.settings_connections import DYNAMIC_NAMES, connection_rules, shut_out
from magnetar.base.settings_connections import OWN_NAMES as CONNECTION_NAMES
from magnetar.base.settings_delegation import DelegationTokenSettings, delegation_tokens
from magnetar.base.settings_groups import GroupSettings, groups
from magnetar.base.settings_listener import OWN_NAMES, own_key
from magnetar.base.settings_names import canonical, door_option, find, ignored, is_password
from magnetar.base.settings_network import NetworkSettings, PulsarNetworkSettings, bare_host, client_host
from magnetar.base.settings_pipelines import PipelineSettings, pipelines
from magnetar.base.settings_producers import DEDUPLICATION
from magnetar.base.settings_sasl import SASL_NAMES, SaslSettings, kafka_sasl
from magnetar.base.settings_sealing import OLD_SECRETS_KEY, SECRETS_KEY, SealingSettings
from magnetar.base.settings_secure import SECURE, secured
from magnetar.base.settings_sources import assignment, flag_of, from_environment
from magnetar.base.settings_subscriptions import SubscriptionSettings, subscription_settings
from magnetar.base.settings_table import (
    ALIASES,
    ENTRY_CACHE_BYTES_DEFAULT_MAX,
    ENTRY_CACHE_BYTES_MIN,
    PULSAR_MESSAGE_BYTES_DEFAULT,
    PULSAR_MESSAGE_BYTES_MAX,
    PULSAR_MESSAGE_BYTES_MIN,
    SERVER_KEYS,
)
from magnetar.base.settings_tenancy import TenancyLimits, tenancy_limits
from magnetar.base.settings_tls import (
    KAFKA_NAMES,
    PULSAR_NAMES,
    PULSAR_TLS_PORTS,
    Given,
    TlsSettings,
    kafka_tls,
    principal_rules,
    pulsar_tls,
    pulsar_trust,
)
from magnetar.base.settings_topic_defaults import KEY_FAMILIES
from magnetar.base.settings_values import Setting, Values


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The node ids of this process: `first_id`, `first_id` + 1, ... (`count` of them)."""

    first_id: int
    count: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class StorageSettings:
    journal_sync_data: bool
    journal_bytes: int
    entry_cache_bytes: int
    retention_check_interval_ms: int
    disk_free_bytes_min: int


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """`defaults` has the broker keys that are defaults of topic configurations, as far as they were set, {name:
    text}."""

    tenant: str
    namespace: str
    partition_count_default: int
    replication_factor_default: int
    auto_create: bool
    may_delete: bool
    defaults: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Named as the keys, so that the coordinator's own settings are made of these field by field."""

    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    max_transactions_per_coordinator: int
    transaction_coordinator_enabled: bool
    max_active_transactions_per_coordinator: int
    pulsar_transaction_max_timeout_ms: int


@dataclass(frozen=True, slots=True)
class LogSettings:
    level: str
    format: str


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All settings of a server.  Made by `load_settings`.

    `messaging_protocols` are the protocols of other packages to be spoken, `door_options` what was set for those
    (`<protocol>.<key>`), by protocol and key.  `is_secured`: the server makes what `base/settings_secure.py` refers to.
    `given` is what was set, without passwords, by canonical key; `notices`
    are sentences for the log at INFO: keys without effect.
    """

    data_dir: Path
    network: NetworkSettings
    authentication: AuthenticationSettings | None
    nodes: NodeSettings
    storage: StorageSettings
    topics: TopicSettings
    groups: GroupSettings
    transactions: TransactionSettings
    producer_id_expiration_ms: int
    producer_ids_max: int
    pipelines: PipelineSettings
    sealing: SealingSettings
    authorization: AuthorizationSettings | None
    delegation_tokens: DelegationTokenSettings
    compaction: CompactionSettings
    subscriptions: SubscriptionSettings
    deduplication: bool
    tenancy: TenancyLimits
    audit: AuditSettings | None
    messaging_protocols: tuple[str, ...]
    door_options: Mapping[str, Mapping[str, str]]
    is_secured: bool
    log: LogSettings
    given: Mapping[str, Setting]
    notices: tuple[str, ...]


def load_settings(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    assignments: Sequence[str] = (),
    flags: Mapping[str, str] | None = None,
) -> ServerSettings:
    """Merge the layers.  `assignments` are `key=value`; `flags` are {canonical key: value}.

    Raises:
        ConfigError: one sentence, which names the key and where it was set.
        OSError: `file` cannot be read.
    """
    merged = _Merged()
    if file is not None:
        with file.open("rb") as stream:
            data = stream.read((1 << 20) + 1)
        properties = parse_properties(data, str(file))
        merged.layer((one.key, one.value, f"{file} line {one.line}") for one in properties)
    merged.layer(from_environment(environment or {}, merged.notices))
    merged.layer(assignment(text) for text in assignments)
    merged.layer((name, value, flag_of(name)) for name, value in (flags or {}).items())
    secure = merged.given.get(SECURE)
    if secure is not None and secure.text == "true":
        merged.given = secured(merged.given, merged.own)
    return _Reader(merged).settings()


class _Merged:
    """The layers so far: for each canonical key its text and where it was set.

    `own` has the same for keys of single listeners, by (listener, key).
    """

    def __init__(self) -> None:
        self.given: dict[str, Setting] = {}
        self.own: dict[tuple[str, str], Setting] = {}
        self.door_options: dict[str, dict[str, str]] = {}
        self.notices: list[str] = []

    def layer(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """Add (key, value, origin) entries; they override earlier layers."""
        mine: dict[str, Setting] = {}
        own: dict[tuple[str, str], Setting] = {}
        names: dict[str, str] = {}
        for name, text, origin in entries:
            place = own_key(name)
            if place is not None and place[1] in OWN_NAMES:
                setting = Setting(canonical(SERVER_KEYS[place[1]], 1, name, text, origin), origin)
                if own.setdefault(place, setting).text != setting.text:
                    raise ConfigError(
                        f"{name} has different values ({own[place].origin}, {origin}): keep one of them"
                    )
                continue
            reason = ignored(name)
            if reason is not None:
                self.notices.append(f"{origin}: {name} has no effect: {reason}")
                continue
            if name not in SERVER_KEYS and name not in ALIASES and (option := door_option(name)) is not None:
                self.door_options.setdefault(option[0], {})[option[1]] = text
                continue
            key, unit = find(name, origin)
            value = canonical(key, unit, name, text, origin)
            setting = Setting(value, origin)
            before = mine.setdefault(key.name, setting)
            names.setdefault(key.name, name)
            if before.text != value:
                other = names[key.name]
                both = name if name == other else f"{other} and {name}, which mean the same,"
                raise ConfigError(
                    f"{both} have different values ({before.origin}, {origin}): keep one of them"
                )
            if key.no_effect:
                self.notices.append(f"{origin}: {name} has no effect: {key.no_effect}")
        for family in KEY_FAMILIES:
            if any(name in mine for name in family):
                for name in family:
                    self.given.pop(name, None)
        self.given.update(mine)
        self.own.update(own)


class _Reader(Values):
    """What each part of the server is given, and the checks that concern several keys."""

    def __init__(self, merged: _Merged) -> None:
        super().__init__(merged.given, merged.notices)
        self._own = merged.own
        self._door_options = merged.door_options

    def settings(self) -> ServerSettings:
        nodes = self._nodes()
        data_dir = absolute_path("data.dir", self._text("data.dir"))
        return ServerSettings(
            data_dir=data_dir,
            network=self._network(nodes),
            authentication=self._authentication(),
            nodes=nodes,
            storage=StorageSettings(
                journal_sync_data=self._boolean("journal.sync.data"),
                journal_bytes=self._integer("journal.bytes"),
                entry_cache_bytes=self._entry_cache_bytes(),
                retention_check_interval_ms=self._integer("log.retention.check.interval.ms"),
                disk_free_bytes_min=self._integer("health.disk.free.min.bytes"),
            ),
            topics=self._topics(nodes),
            groups=groups(self._text, self._integer, self._list),
            transactions=TransactionSettings(
                self._integer("transaction.max.timeout.ms"),
                self._integer("transactional.id.expiration.ms"),
                self._integer("max.transactions.per.coordinator"),
                self._boolean("transactionCoordinatorEnabled"),
                self._integer("maxActiveTransactionsPerCoordinator"),
                self._integer("pulsar.transaction.max.timeout.ms"),
            ),
            producer_id_expiration_ms=self._integer("producer.id.expiration.ms"),
            producer_ids_max=self._integer("max.concurrent.producer.ids"),
            pipelines=pipelines(self._text, self._boolean, self._list, data_dir),
            sealing=SealingSettings(self._text(SECRETS_KEY), self._text(OLD_SECRETS_KEY)),
            authorization=self._authorization(),
            delegation_tokens=delegation_tokens(self._text, self._integer, self._notice),
            compaction=compaction(self._text, self._integer),
            subscriptions=subscription_settings(self._integer),
            deduplication=self._boolean(DEDUPLICATION),
            tenancy=tenancy_limits(self._integer),
            audit=audit(self._text, self._notice),
            messaging_protocols=self._list("messagingProtocols"),
            door_options=self._door_options,
            is_secured=self._boolean(SECURE),
            log=LogSettings(self._text("log.level"), self._text("log.format")),
            given={
                name: replace(setting, text=HIDDEN) if is_password(name) and setting.text else setting
                for name, setting in self._given.items()
            },
            notices=tuple(self._notices),
        )

    def _network(self, nodes: NodeSettings) -> NetworkSettings:
        listeners = self._listeners()
        # If an operator sets only Kafka's listeners, the other ports follow: what the operator closed to the network
        # must not stay open at another port.
        host = bare_host(self._text("host")) if "host" in self._given else listeners[0].host
        if nodes.count > 1 and any(one.port and one.port + nodes.count - 1 > PORT_MAX for one in listeners):
            raise ConfigError(f"{nodes.count} nodes need ports past {PORT_MAX}: choose a lower port")
        self._notice_own(CONNECTION_NAMES, [one.name for one in listeners], "is there")
        if reason := shut_out(connection_rules({name: self._text(name) for name in DYNAMIC_NAMES}, {})):
            raise ConfigError(reason)
        network = NetworkSettings(
            listeners=listeners,
            tls=self._kafka_tls(listeners),
            principals={
                one.name: principal_rules(partial(self._look_up_own, one.name))
                for one in listeners
                if one.has_tls
            },
            sasl=self._kafka_sasl(listeners),
            advertised=self._advertised(listeners),
            http_host=host,
            http_port=self._integer_or_none("http.port"),
            https_port=self._integer_or_none("webServicePortTls"),
            http_allowed_hosts=tuple(self._list("http.allowed.hosts")),
            http_allowed_origins=tuple(self._list("http.allowed.origins")),
            pulsar=self._pulsar(host),
            own_connections={key: one.text for key, one in self._own.items() if key[1] in CONNECTION_NAMES},
            idle_ms_max=self._integer("connections.max.idle.ms"),
            request_bytes_max=self._integer("socket.request.max.bytes"),
            queued_request_bytes_max=self._integer("queued.max.request.bytes"),
            fetch_bytes_max=self._integer("fetch.max.bytes"),
            fetch_sessions_max=self._integer("max.incremental.fetch.session.cache.slots"),
        )
        for port, tls_port in (("pulsar.port", "brokerServicePortTls"), ("http.port", "webServicePortTls")):
            if not self._text(port) and not self._text(tls_port):
                raise ConfigError(f"{port} is set to nothing, and {tls_port} is not set: set one of them")
        check_addresses(network.every_listener(nodes.count))
        return network

    def _pulsar(self, host: str) -> PulsarNetworkSettings:
        url = self._text_or_none("pulsar.advertised.url")
        advertised = parse_pulsar_url(url) if url else (self._text("advertised.host") or client_host(host), 0)
        listeners = parse_pulsar_listeners(*map(self._text, PULSAR_LISTENER_KEYS))
        if url and listeners.default:
            raise ConfigError(
                "pulsar.advertised.url and advertisedListeners both say where clients connect: keep one of them"
            )
        return PulsarNetworkSettings(
            host=host,
            port=self._integer_or_none("pulsar.port"),
            tls_port=self._integer_or_none("brokerServicePortTls"),
            tls=self._pulsar_tls(listeners),
            advertised_host=advertised[0],
            advertised_port=advertised[1],
            listeners=listeners,
            message_bytes_max=self._pulsar_message_bytes_max(),
            keep_alive_s=self._integer("pulsar.keep.alive.seconds"),
            connections_max=self._integer("brokerMaxConnections"),
            connections_per_address_max=self._integer("brokerMaxConnectionsPerIp"),
        )

    def _authorization(self) -> AuthorizationSettings | None:
        given = {name: one.text for name, one in self._given.items() if name in AUTHORIZATION_NAMES}
        found = authorization(given, tuple(self._list("superUserRoles")))
        if found is None:
            on = {"authorizer.class.name", "authorizationEnabled"}
            self._notice(AUTHORIZATION_NAMES - on, "authorization is off")
        return found

    def _authentication(self) -> AuthenticationSettings | None:
        if self._boolean("authenticationEnabled"):
            found = authentication(self._text, self._list)
            trust = pulsar_trust(self._text)
            if TLS in found.methods and not (self._text(trust) and any(map(self._text, PULSAR_TLS_PORTS))):
                ports = " or ".join(PULSAR_TLS_PORTS)
                self._notices.append(f"AuthenticationProviderTls lets no client in: set {trust}, and {ports}")
            return found
        self._notice(AUTHENTICATION_NAMES - {"authenticationEnabled"}, "authenticationEnabled is not true")
        return None

    def _kafka_tls(self, listeners: Sequence[Listener]) -> dict[str, TlsSettings]:
        names = [one.name for one in listeners if one.has_tls]
        self._notice_own(KAFKA_NAMES, names, "speaks TLS")
        # As in Kafka, a listener that asks for a login asks for certificates only by a setting of its own.
        for one in listeners:
            if one.has_sasl:
                self._own.setdefault((one.name, "ssl.client.auth"), Setting("none", "Kafka's default"))
        return {name: kafka_tls(name, partial(self._look_up_own, name)) for name in names}

    def _kafka_sasl(self, listeners: Sequence[Listener]) -> dict[str, SaslSettings]:
        names = [one.name for one in listeners if one.has_sasl]
        self._notice_own(SASL_NAMES, names, "asks for SASL")
        return {name: kafka_sasl(name, partial(self._look_up_own, name)) for name in names}

    def _look_up_own(self, listener: str, key: str) -> Given:
        own = self._own.get((listener, key))
        return self._look_up(key) if own is None else Given(own.text, f"{key} of listener {listener}")

    def _notice_own(self, keys: Collection[str], listeners: Collection[str], what: str) -> None:
        """Add a notice for each of `keys` that was set for a listener which is not in `listeners`: it has no effect."""
        if not listeners:
            self._notice(keys, f"no listener {what}")
        self._notices += [
            f"{setting.origin}: {key} has no effect: no listener {listener} {what}"
            for (listener, key), setting in self._own.items()
            if key in keys and listener not in listeners
        ]

    def _pulsar_tls(self, listeners: PulsarListeners) -> TlsSettings | None:
        bound = [BIND_ADDRESSES] if any(one.has_tls for one in listeners.bindings) else []
        for port in (*filter(self._text, PULSAR_TLS_PORTS), *bound):
            return pulsar_tls(port, self._look_up, self._notice)
        self._notice(PULSAR_NAMES, "neither brokerServicePortTls nor webServicePortTls is set")
        return None

    def _pulsar_message_bytes_max(self) -> int:
        if "pulsar.message.max.bytes" in self._given:
            return self._integer("pulsar.message.max.bytes")
        # Pulsar's own name for its limit, maxMessageSize, is that of message.max.bytes in a KoP broker's file.
        if "message.max.bytes" in self._given:
            wanted = self._integer("message.max.bytes")
            return min(max(wanted, PULSAR_MESSAGE_BYTES_MIN), PULSAR_MESSAGE_BYTES_MAX)
        return PULSAR_MESSAGE_BYTES_DEFAULT

    def _listeners(self) -> tuple[Listener, ...]:
        given = self._given.get("listeners")
        port = self._given.get("kafka.port")
        if given is not None and port is not None:
            raise ConfigError(
                f"listeners ({given.origin}) and kafka.port ({port.origin}) both say where to listen: keep"
                " one of them"
            )
        protocols = parse_protocol_map(self._text("listener.security.protocol.map"))
        host = bare_host(self._text("host"))
        if given is None:
            return (Listener("PLAINTEXT", host, self._integer("kafka.port"), "PLAINTEXT"),)
        not_ours = self._list("controller.listener.names")
        return parse_listeners(given.text, protocols, not_ours, host if "host" in self._given else "")

    def _advertised(self, listeners: Sequence[Listener]) -> dict[str, tuple[str, int]]:
        host = self._text_or_none("advertised.host")
        advertised = {one.name: (host, 0) for one in listeners} if host else {}
        given = self._text_or_none("advertised.listeners")
        if given:
            advertised.update(parse_advertised(given, listeners))
        return advertised

    def _nodes(self) -> NodeSettings:
        return NodeSettings(
            self._integer("node.id"), self._integer("nodes"), self._text_or_none("broker.rack")
        )

    def _topics(self, nodes: NodeSettings) -> TopicSettings:
        factor = self._integer("default.replication.factor")
        if factor > nodes.count:
            raise ConfigError(
                f"default.replication.factor is {factor}, but there are {nodes.count} nodes: lower it or"
                " raise nodes"
            )
        tenant, namespace = self._text("kafkaTenant"), self._text("kafkaNamespace")
        try:
            check_named_entity("tenant", tenant)
            check_named_entity("namespace", namespace)
        except InvalidTopicName as error:
            raise ConfigError(f"kafkaTenant and kafkaNamespace: {error}") from None
        return TopicSettings(
            tenant=tenant,
            namespace=namespace,
            partition_count_default=self._integer("num.partitions"),
            replication_factor_default=factor,
            auto_create=self._boolean("auto.create.topics.enable"),
            may_delete=self._boolean("delete.topic.enable"),
            defaults={
                name: setting.text
                for name, setting in self._given.items()
                if SERVER_KEYS[name].section is Section.TOPIC_DEFAULTS
            },
        )

    def _entry_cache_bytes(self) -> int:
        if "entry.cache.bytes" in self._given:
            return self._integer("entry.cache.bytes")
        return min(max(memory_bytes() // 4, ENTRY_CACHE_BYTES_MIN), ENTRY_CACHE_BYTES_DEFAULT_MAX)
