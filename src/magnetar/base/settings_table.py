"""Every configuration key that the server acts on, and those it only shows: Kafka's names, KoP's as aliases,
our own.

`docs/reference/configuration.md` is made from this table.  Keys of Kafka and KoP that mean nothing here at
all are in `settings_ignored.py`.
"""

from dataclasses import replace
from typing import Final

from magnetar.base.config import ConfigType, Value
from magnetar.base.errors import ConfigError
from magnetar.base.listeners import parse_pulsar_url
from magnetar.base.server_key import Alias, Section, ServerKey, aliases
from magnetar.base.settings_audit import AUDIT_KEYS
from magnetar.base.settings_authentication import AUTHENTICATION_KEYS
from magnetar.base.settings_authorization import AUTHORIZATION_KEYS
from magnetar.base.settings_compaction import COMPACTION_KEYS
from magnetar.base.settings_connections import CONNECTION_KEYS
from magnetar.base.settings_delegation import DELEGATION_KEYS
from magnetar.base.settings_groups import GROUP_KEYS
from magnetar.base.settings_pipelines import PIPELINE_KEYS
from magnetar.base.settings_producers import PRODUCER_KEYS
from magnetar.base.settings_refused import REFUSED_KEYS
from magnetar.base.settings_sasl import KAFKA_SASL_KEYS
from magnetar.base.settings_sealing import SEALING_KEYS
from magnetar.base.settings_subscriptions import SUBSCRIPTION_KEYS
from magnetar.base.settings_tenancy import TENANCY_KEYS
from magnetar.base.settings_tls import TLS_KEYS
from magnetar.base.settings_topic_defaults import TOPIC_DEFAULT_KEYS
from magnetar.base.settings_transactions import TRANSACTION_KEYS

MIB: Final = 1 << 20
ENTRY_CACHE_BYTES_MIN: Final = MIB
# A larger cache keeps more of a backlog in memory.  But every byte of it is fresh memory first, which is the most
# expensive thing that a produce request can touch.  Direct reads are as fast as the disk, so recycling a smaller cache
# is faster (measured).
ENTRY_CACHE_BYTES_DEFAULT_MAX: Final = 1024 * MIB
JOURNAL_BYTES_MIN: Final = 64 * MIB
NODES_MAX: Final = 100
PULSAR_MESSAGE_BYTES_MIN: Final = 64 * 1024
PULSAR_MESSAGE_BYTES_DEFAULT: Final = 5 * MIB
PULSAR_MESSAGE_BYTES_MAX: Final = 128 * MIB  # an entry is kept, and sent, as one piece


def _one_directory(value: Value) -> str | None:
    assert isinstance(value, str)
    if "," in value:
        return "must be one directory: all data lies in one place here"
    return None if value else "must name a directory"


def _pulsar_url(value: Value) -> str | None:
    try:
        parse_pulsar_url(str(value))
    except ConfigError as error:
        return str(error)
    return None


_B, _S, _I, _L, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)


_NETWORK = (
    ServerKey(
        "secure",
        _B,
        "false",
        "A safe server, also as `--secure`: the server makes certificates and an administrator's token in "
        "`security` in the data directory, all ports use TLS, and all clients have to log in and need "
        "rights.",
    ),
    ServerKey(
        "listeners",
        _S,
        None,
        "The addresses to listen on, as NAME://host:port. An empty host means `host` if that is set, "
        "otherwise every address; port 0 means a free one.",
        default_words="PLAINTEXT on `host` and `kafka.port`",
        aliases=aliases("kafkaListeners"),
    ),
    ServerKey(
        "advertised.listeners",
        _S,
        None,
        "The addresses to which clients connect, by listener.",
        default_words="the listener's host, or the address that the client itself connected to",
        aliases=aliases("kafkaAdvertisedListeners"),
    ),
    ServerKey(
        "listener.security.protocol.map",
        _S,
        "",
        "The security protocol of each listener whose name is not a protocol's: PLAINTEXT, SSL,"
        " SASL_PLAINTEXT or SASL_SSL.",
        aliases=aliases("kafkaProtocolMap"),
    ),
    ServerKey(
        "controller.listener.names",
        _LIST,
        "",
        "Listeners to leave out, so that a KRaft node's file can be used: this server has no controller.",
    ),
    ServerKey(
        "host",
        _S,
        "localhost",
        "The address of the default listener, of Pulsar and of HTTP; `localhost` is 127.0.0.1 and ::1, "
        "empty is every address. If only `listeners` is set, Pulsar and HTTP use the host of its first "
        "listener.",
        aliases=aliases("bindAddress"),
    ),
    ServerKey(
        "advertised.host",
        _S,
        "",
        "The host to which clients connect, for listeners that advertised.listeners does not name.",
        aliases=aliases("advertisedAddress"),
    ),
    ServerKey(
        "kafka.port", _I, "9092", "The default listener's port; 0 is a free one.", minimum=0, maximum=65535
    ),
    ServerKey(
        "pulsar.port",
        _I,
        "6650",
        "The port of Pulsar's binary protocol, on `host`; 0 is a free one. An empty value closes it, and "
        "brokerServicePortTls is the only port.",
        minimum=0,
        maximum=65535,
        aliases=aliases("brokerServicePort"),
        may_be_empty=True,
    ),
    ServerKey(
        "messagingProtocols",
        _LIST,
        "",
        "Protocols of installed packages that the server serves beside Kafka's and Pulsar's; each has "
        "settings of its own, `<protocol>.<key>`.",
    ),
    ServerKey(
        "pulsar.advertised.url",
        _S,
        None,
        "The address to which Pulsar clients connect, as pulsar://host:port.",
        default_words="`advertised.host` or `host` with the port that is listened on; where `host` stands for several"
        " addresses, the one that the client itself connected to",
        check=_pulsar_url,
    ),
    ServerKey(
        "pulsar.advertised.listeners",
        _S,
        "",
        "Addresses by name for Pulsar's clients, as NAME:SCHEME://host:port with the schemes pulsar, pulsar+ssl, http"
        " and https: clients that ask for the listener NAME connect there.",
        aliases=aliases("advertisedListeners"),
    ),
    ServerKey(
        "pulsar.internal.listener.name",
        _S,
        "",
        "The listener of advertisedListeners for clients that ask for none; by default the first.",
        aliases=aliases("internalListenerName"),
    ),
    ServerKey(
        "pulsar.bind.addresses",
        _S,
        "",
        "More addresses that Pulsar's protocol listens on, as NAME:SCHEME://host:port: a client that connects"
        " there and asks for no listener gets the addresses of NAME.",
        aliases=aliases("bindAddresses"),
    ),
    ServerKey(
        "http.port",
        _I,
        "8080",
        "The port of REST and metrics; 0 is a free one. An empty value closes it, and webServicePortTls is"
        " the only port.",
        minimum=0,
        maximum=65535,
        aliases=aliases("webServicePort"),
        may_be_empty=True,
    ),
    ServerKey(
        "http.allowed.hosts",
        _LIST,
        "",
        "Names that HTTP requests may have in their Host header, in addition to localhost, numeric "
        "addresses, this machine's name and those of listeners. * allows all names, and so every web page "
        "in a browser on this machine.",
    ),
    ServerKey(
        "http.allowed.origins",
        _LIST,
        "",
        "Web sites whose pages may use the HTTP port, as https://console.example.com; * means all.",
    ),
)

_NODES = (
    ServerKey(
        "node.id",
        _I,
        "1",
        "This server's node id; with several nodes, the id of the first.",
        minimum=0,
        aliases=aliases("broker.id"),
    ),
    ServerKey(
        "nodes",
        _I,
        "1",
        "How many node ids this process serves; each listens on ports of its own, counted up from the first"
        " node's.",
        minimum=1,
        maximum=NODES_MAX,
    ),
    ServerKey("broker.rack", _S, None, "The rack that this server reports to clients."),
)

_STORAGE = (
    ServerKey(
        "data.dir",
        _S,
        "magnetar-data",
        "The folder that contains everything; the server creates it if it does not exist.",
        check=_one_directory,
        aliases=aliases("log.dirs", "log.dir"),
    ),
    ServerKey(
        "journal.sync.data",
        _B,
        "true",
        "true: what is acknowledged is on disk. false: the operating system writes when it likes, as with Kafka.",
        aliases=aliases("journalSyncData"),
    ),
    ServerKey(
        "journal.bytes",
        _L,
        str(512 * MIB),
        "The space of the journal, which the server reserves in advance.",
        minimum=JOURNAL_BYTES_MIN,
        maximum=1 << 32,
    ),
    ServerKey(
        "health.disk.free.min.bytes",
        _L,
        str(128 * MIB),
        "The space on the disk of data.dir below which `/health` fails; 0: no limit.",
        minimum=0,
    ),
    ServerKey(
        "entry.cache.bytes",
        _L,
        None,
        "The memory that keeps recently written entries for clients that read them soon.",
        minimum=ENTRY_CACHE_BYTES_MIN,
        default_words="a quarter of the memory that this process may use, at most 1 GiB",
        aliases=(Alias("managedLedgerCacheSizeMB", MIB),),
    ),
    ServerKey(
        "log.retention.check.interval.ms",
        _L,
        "300000",
        "How often the server looks for data past its retention.",
        minimum=1,
    ),
)

_TOPICS = (
    ServerKey(
        "num.partitions",
        _I,
        "1",
        "The number of partitions of a topic whose creator does not say it.",
        minimum=1,
        maximum=10_000,
        aliases=aliases("defaultNumPartitions"),
    ),
    ServerKey(
        "default.replication.factor",
        _I,
        "1",
        "The replication factor of a topic whose creator does not say it; at most the number of nodes.",
        minimum=1,
    ),
    ServerKey(
        "auto.create.topics.enable",
        _B,
        "true",
        "Whether the server creates a topic when a client first asks for it.",
        aliases=aliases("allowAutoTopicCreation"),
    ),
    ServerKey("delete.topic.enable", _B, "true", "Whether clients may delete topics."),
    ServerKey("kafkaTenant", _S, "public", "The tenant of topics that Kafka clients name without one."),
    ServerKey(
        "kafkaNamespace", _S, "default", "The namespace of topics that Kafka clients name without one."
    ),
)

_REQUESTS = (
    *CONNECTION_KEYS,
    ServerKey(
        "connections.max.idle.ms",
        _L,
        "600000",
        "How long a connection may be silent before it is closed; -1: no limit.",
        minimum=-1,
        aliases=aliases("connectionMaxIdleMs"),
    ),
    ServerKey(
        "socket.request.max.bytes",
        _I,
        str(100 * MIB),
        "The largest request that the server reads.",
        minimum=1,
    ),
    ServerKey(
        "pulsar.message.max.bytes",
        _I,
        None,
        "The largest message, or batch of messages, that a Pulsar client may send; larger ones come in chunks.",
        minimum=PULSAR_MESSAGE_BYTES_MIN,
        maximum=PULSAR_MESSAGE_BYTES_MAX,
        default_words="message.max.bytes (maxMessageSize) if that is set, else 5 MiB",
    ),
    ServerKey(
        "pulsar.keep.alive.seconds",
        _I,
        "30",
        "How often the server asks a silent Pulsar client whether it is there; the second time without an answer"
        " closes its connection.  0: never.",
        minimum=0,
        maximum=86_400,
        aliases=aliases("keepAliveIntervalSeconds"),
    ),
    ServerKey(
        "queued.max.request.bytes",
        _L,
        "-1",
        "How many bytes connections may have under way, over all of them and both protocols: requests that are"
        " received or not answered, and responses that are not taken.  Past it no more is read, and clients that"
        " make no progress are cut off; -1 means a quarter of the memory, 1 GiB at most.",
        minimum=-1,
        aliases=(Alias("maxMessagePublishBufferSizeInMB", MIB),),
    ),
    ServerKey(
        "fetch.max.bytes",
        _I,
        str(55 * MIB),
        "The most that one fetch returns, whatever it asks for.",
        minimum=1024,
    ),
    ServerKey(
        "max.incremental.fetch.session.cache.slots",
        _I,
        "1000",
        "How many fetch sessions are kept (KIP-227).",
        minimum=0,
    ),
)

_GROUPS = (
    ServerKey(
        "group.initial.rebalance.delay.ms",
        _I,
        "0",
        "How long a new group waits for more members before its first assignment. 0, as in the"
        " server.properties that Kafka ships: the first member is assigned at once.",
        minimum=0,
        aliases=aliases("groupInitialRebalanceDelayMs"),
    ),
    ServerKey(
        "group.min.session.timeout.ms",
        _I,
        "6000",
        "The shortest session time-out that a member may ask for.",
        minimum=0,
        aliases=aliases("groupMinSessionTimeoutMs"),
    ),
    ServerKey(
        "group.max.session.timeout.ms",
        _I,
        "1800000",
        "The longest session time-out that a member may ask for.",
        minimum=0,
        aliases=aliases("groupMaxSessionTimeoutMs"),
    ),
    ServerKey("group.max.size", _I, "2147483647", "How many members a group may have.", minimum=1),
    ServerKey(
        "offset.metadata.max.bytes",
        _I,
        "4096",
        "The most text that may come with a committed offset.",
        minimum=0,
        maximum=32_767,
        aliases=aliases("offsetMetadataMaxSize"),
    ),
    ServerKey(
        "offsets.retention.minutes",
        _I,
        "10080",
        "How long the offsets of a group without members are kept.",
        minimum=1,
        aliases=aliases("offsetsRetentionMinutes"),
    ),
    ServerKey(
        "offsets.retention.check.interval.ms",
        _L,
        "600000",
        "How often the server looks for offsets past their retention.",
        minimum=1,
        aliases=aliases("offsetsRetentionCheckIntervalMs"),
    ),
    ServerKey(
        "producer.id.expiration.ms",
        _I,
        "86400000",
        "How long an idle idempotent producer is kept.",
        minimum=1,
    ),
    ServerKey(
        "max.concurrent.producer.ids",
        _I,
        "100000",
        "How many idempotent producers are remembered. Past it, the partitions with most of them forget those that"
        " have not written for longest.",
        minimum=1,
    ),
    *TRANSACTION_KEYS,
)

_LOGGING = (
    ServerKey(
        "log.level",
        _S,
        "info",
        "The lowest level of the lines that the server logs.",
        choices=("debug", "info", "warning", "error"),
    ),
    ServerKey(
        "log.format", _S, "text", "Lines for people (text) or for programs (json).", choices=("text", "json")
    ),
)

_COMPATIBILITY = (
    ServerKey(
        "entryFormat",
        _S,
        "kafka",
        "KoP's storage format.",
        choices=("pulsar", "kafka", "mixed_kafka"),
        no_effect="there is no format to choose: batches are stored as they came and converted for readers"
        " of the other protocol",
    ),
    *REFUSED_KEYS,
)


def _in(section: Section, keys: tuple[ServerKey, ...]) -> list[ServerKey]:
    return [replace(key, section=section) for key in keys]


SERVER_KEYS: Final[dict[str, ServerKey]] = {
    key.name: key
    for section, keys in (
        (Section.NETWORK, _NETWORK),
        (Section.TLS, TLS_KEYS),
        (Section.SASL, (*KAFKA_SASL_KEYS, *DELEGATION_KEYS)),
        (Section.AUTHENTICATION, AUTHENTICATION_KEYS),
        (Section.AUTHORIZATION, AUTHORIZATION_KEYS),
        (Section.AUDIT, AUDIT_KEYS),
        (Section.NODES, _NODES),
        (Section.STORAGE, (*_STORAGE, *COMPACTION_KEYS)),
        (Section.TOPICS, (*_TOPICS, *TENANCY_KEYS, *PRODUCER_KEYS)),
        (Section.TOPIC_DEFAULTS, TOPIC_DEFAULT_KEYS),
        (Section.REQUESTS, _REQUESTS),
        (Section.GROUPS, (*_GROUPS, *GROUP_KEYS, *SUBSCRIPTION_KEYS)),
        (Section.PIPELINES, (*PIPELINE_KEYS, *SEALING_KEYS)),
        (Section.LOGGING, _LOGGING),
        (Section.COMPATIBILITY, _COMPATIBILITY),
    )
    for key in _in(section, keys)
}

ALIASES: Final[dict[str, tuple[ServerKey, int]]] = {
    alias.name: (key, alias.unit) for key in SERVER_KEYS.values() for alias in key.aliases
}
