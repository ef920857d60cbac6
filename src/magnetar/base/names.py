"""Topic names, between Kafka's flat ones and Pulsar's `persistent://tenant/namespace/topic`.

A topic has one name of its own, the full one.  A Kafka client may say `t` (the default tenant and namespace are filled
in), `tenant/namespace/t` or the full name in every API.  The server shows it `t` for the topics of its own namespace
and the full name for all others.  So a client can use the names of a listing as they are.

The last part follows Kafka's rules (`org.apache.kafka.common.internals.Topic`), so that every topic can be
reached from both protocols.  Partition p of a topic is written `...-partition-p`, as Pulsar writes it.  A topic whose
own name ends like that would look like a partition of another topic, so the server refuses it.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

from magnetar.base.errors import BrokerError

PERSISTENT: Final = "persistent://"  # what full names begin with
NON_PERSISTENT: Final = "non-persistent://"
LOCAL_NAME_CHARS_MAX: Final = (
    249  # Kafka: a log directory's name must stay below 255 with "-<partition>" behind it
)
NAMED_ENTITY_CHARS_MAX: Final = 128  # a tenant or a namespace
PRINCIPAL_BYTES_MAX: Final = 16 << 10  # Kafka's protocol has room for 32 KiB with what is before it
FULL_NAME_CHARS_MAX: Final = len(NON_PERSISTENT) + 2 * (NAMED_ENTITY_CHARS_MAX + 1) + LOCAL_NAME_CHARS_MAX
PARTITION_SEPARATOR: Final = "-partition-"
DEFAULT_TENANT: Final = "public"
DEFAULT_NAMESPACE: Final = "default"

_PARSE_CACHE_ENTRIES_MAX: Final = 65_536

_LOCAL = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_NAMED_ENTITY = re.compile(
    r"[A-Za-z0-9_=:.-]+", re.ASCII
)  # Pulsar: org.apache.pulsar.common.naming.NamedEntity
_PARTITION = re.compile(r"(?P<topic>.*)-partition-(?P<index>0|[1-9][0-9]{0,9})", re.DOTALL)
_DOMAINS = {"persistent": True, "non-persistent": False}


class InvalidTopicName(BrokerError):
    """The name cannot belong to any topic."""

    code: ClassVar[str] = "INVALID_TOPIC_NAME"


@dataclass(frozen=True, slots=True)
class TopicName:
    """The name of one whole topic (never of one of its partitions).  Made by `TopicName.parse`."""

    tenant: str
    namespace: str
    local: str
    persistent: bool = True

    @staticmethod
    def parse(name: str, tenant: str = DEFAULT_TENANT, namespace: str = DEFAULT_NAMESPACE) -> "TopicName":
        """Read `t`, `tenant/namespace/t` or a full name; `tenant` and `namespace` complete the first form.

        Results are kept in a bounded cache, so a name that is used again costs one dictionary look-up.

        Raises:
            InvalidTopicName: with one sentence that says why.
        """
        if (
            len(name) > FULL_NAME_CHARS_MAX
        ):  # before the cache, which must not keep what a client makes up at length
            raise InvalidTopicName(
                f"topic name of {len(name)} characters is too long: {LOCAL_NAME_CHARS_MAX} are allowed"
            )
        return _parse(name, tenant, namespace)

    @property
    def domain(self) -> str:
        return "persistent" if self.persistent else "non-persistent"

    @property
    def path(self) -> str:
        """`tenant/namespace/domain/local`, for paths of the metadata store."""
        return f"{self.tenant}/{self.namespace}/{self.domain}/{self.local}"

    @staticmethod
    def at(path: str) -> "TopicName":
        """The name whose `path` this is."""
        tenant, namespace, domain, local = path.split("/")
        return TopicName(tenant, namespace, local, domain == "persistent")

    @property
    def namespace_name(self) -> str:
        """`tenant/namespace`"""
        return f"{self.tenant}/{self.namespace}"

    @property
    def full(self) -> str:
        """The name by which everything inside Magnetar knows the topic."""
        return (
            f"{PERSISTENT if self.persistent else NON_PERSISTENT}{self.tenant}/{self.namespace}/{self.local}"
        )

    def kafka_name(self, tenant: str = DEFAULT_TENANT, namespace: str = DEFAULT_NAMESPACE) -> str:
        """What a Kafka client that works in `tenant/namespace` is shown."""
        if self.persistent and self.tenant == tenant and self.namespace == namespace:
            return self.local
        return self.full

    def partition_name(self, partition: int) -> str:
        """The full name of one partition."""
        assert partition >= 0, partition
        return f"{self.full}{PARTITION_SEPARATOR}{partition}"

    def __str__(self) -> str:
        return self.full


def parse_partition(
    name: str, tenant: str = DEFAULT_TENANT, namespace: str = DEFAULT_NAMESPACE
) -> tuple[TopicName, int]:
    """The topic and partition that a Pulsar client means; (topic, -1) when `name` is that of a whole topic.

    Raises:
        InvalidTopicName: as for `TopicName.parse`.
    """
    match = _PARTITION.fullmatch(name)
    if match is None or match["topic"].endswith("/") or not match["topic"]:
        return TopicName.parse(name, tenant, namespace), -1
    return TopicName.parse(match["topic"], tenant, namespace), int(match["index"])


def check_named_entity(kind: str, name: str) -> None:
    """Hold `name` to the rules of a tenant or a namespace (`kind` says which, for the message)."""
    if not name:
        raise InvalidTopicName(f"a {kind} has no name")
    if len(name) > NAMED_ENTITY_CHARS_MAX:
        raise InvalidTopicName(
            f"{kind} of {len(name)} characters is too long: {NAMED_ENTITY_CHARS_MAX} are allowed"
        )
    if name in (".", ".."):
        raise InvalidTopicName(f"{kind} cannot be '.' or '..'")
    if _NAMED_ENTITY.fullmatch(name) is None:
        raise InvalidTopicName(
            f"{kind} {name!r} may have only ASCII letters, digits and the characters _ = : . -"
        )


@lru_cache(maxsize=_PARSE_CACHE_ENTRIES_MAX)
def _parse(name: str, tenant: str, namespace: str) -> TopicName:
    domain, scheme, path = name.rpartition("://")
    persistent = True
    if scheme:
        if domain not in _DOMAINS:
            raise InvalidTopicName(
                f"topic name {name!r} must begin with 'persistent://' or 'non-persistent://'"
            )
        persistent = _DOMAINS[domain]
    else:
        path = name
    parts = path.split("/")
    if len(parts) == 1 and not scheme:
        local = parts[0]
    elif len(parts) == 3:
        tenant, namespace, local = parts
    else:
        raise InvalidTopicName(
            f"topic name {name!r} must be 'topic', 'tenant/namespace/topic' or 'persistent://tenant/namespace/topic'"
        )
    check_named_entity("tenant", tenant)
    check_named_entity("namespace", namespace)
    _check_local(local)
    return TopicName(tenant, namespace, local, persistent)


def _check_local(local: str) -> None:
    if not local:
        raise InvalidTopicName("a topic has no name")
    if local in (".", ".."):
        raise InvalidTopicName("topic name cannot be '.' or '..'")
    if len(local) > LOCAL_NAME_CHARS_MAX:
        raise InvalidTopicName(
            f"topic name of {len(local)} characters is too long: {LOCAL_NAME_CHARS_MAX} are allowed"
        )
    if _LOCAL.fullmatch(local) is None:
        raise InvalidTopicName(
            f"topic name {local!r} may have only ASCII letters, digits and the characters . _ -"
        )
    partition_of = _PARTITION.fullmatch(local)
    if partition_of is not None:
        raise InvalidTopicName(
            f"topic name {local!r} stands for partition {partition_of['index']} of topic"
            f" {partition_of['topic']!r}: choose a name that does not end in '-partition-<number>'"
        )
