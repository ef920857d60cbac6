"""What is said of a kind of request: the rights that it takes, and what Kafka's broker answers without them.

A `Kind` is refused when the caller lacks any of its `refusals`: each is one right, or several of which one is enough,
and comes with all error codes of the response, in the order of its fields.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from magnetar.broker.security.model import Operation, ResourceType
from magnetar.broker.telemetry.clients import TelemetryClients
from magnetar.broker.telemetry.model import TelemetryClient
from magnetar.broker.telemetry.subscriptions import TelemetrySubscriptions
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.wire.kafka.runtime import Message

Right = tuple[Operation, ResourceType]
Codes = list[int]

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.SUBSCRIPTION, ResourceType.CLUSTER
TXN: Final = ResourceType.TRANSACTIONAL_ID
TOKEN, USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER
TOPIC_DENIED: Final = 29
GROUP_DENIED: Final = 30
CLUSTER_DENIED: Final = 31
TXN_DENIED: Final = 53
TOKEN_DENIED: Final = 65
DENIED_CODES: Final = {TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TXN_DENIED, TOKEN_DENIED}
INSTANCE_ID: Final = bytes([1] * 16)
# What a client of that id is told wherever there are no subscriptions to clients' metrics.
TELEMETRY_ID: Final = (
    TelemetryClients(TelemetrySubscriptions(MemoryMetadataStore()), FakeClock())
    .subscribe(INSTANCE_ID, TelemetryClient("", "", "", ""))
    .subscription_id
)


class Names(NamedTuple):
    """What a request is about: things that there are, or that there are not."""

    topic: str
    topic_id: bytes
    group: str
    transactional_id: str
    producer_id: int
    data_dir: str
    batch: bytes
    token_hmac: bytes


@dataclass(frozen=True)
class Kind:
    """See the module's text.  `hides` are rights without which the answer is there and tells less; `refusals` are none
    where no rule is asked.
    """

    api: str
    version: int
    request: Callable[[Names], Any]
    refusals: Mapping[frozenset[Right], Codes]
    hides: frozenset[Right] = frozenset()
    note: str = ""

    @property
    def label(self) -> str:
        return f"{self.api} {self.note}".strip()

    @property
    def rights(self) -> set[Right]:
        return {*self.hides, *(right for rights in self.refusals for right in rights)}


def right(operation: Operation, kind: ResourceType, *refusal: int) -> dict[frozenset[Right], Codes]:
    """One right, without which the answer has these codes."""
    return {frozenset({(operation, kind)}): list(refusal)}


def codes(message: Any) -> Iterator[int]:
    """All error codes of a response."""
    if isinstance(message, Message):
        for name in message.__slots__:
            value = getattr(message, name)
            if name in ("error_code", "partition_error_code"):
                yield value
            else:
                yield from codes(value)
    elif isinstance(message, list):
        for one in message:
            yield from codes(one)


def listed(response: Any) -> list[Any]:
    """What a response lists, whatever it is."""
    found: list[Any] = []
    for name in ("topics", "transaction_states", "results", "config_resources", "tokens"):
        found += getattr(response, name, None) or []
    for group in getattr(response, "groups", None) or []:
        found += getattr(group, "topics", [group])
    return found
