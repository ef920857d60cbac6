"""What is said of a kind of request: the rights that it takes, and what Kafka's broker answers without them.

A `Kind` is refused when the caller lacks any of its `refusals`: each is one right, or several of which one is enough,
and comes with all error codes of the response, in the order of its fields.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from magnetar.broker.security.model import Operation, ResourceType

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


def right(operation: Operation, kind: ResourceType, *codes: int) -> dict[frozenset[Right], Codes]:
    """One right, without which the answer has these codes."""
    return {frozenset({(operation, kind)}): list(codes)}
