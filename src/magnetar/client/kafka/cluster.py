"""Knows which broker leads which partition, and which coordinates what, and has connections to them.

If a request fails for a temporary reason (a leader has moved, a server restarts), the client asks again which broker is
responsible.  It repeats the request until `patience_s` is over.  It repeats only requests for which that is harmless.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Any, Final

from magnetar.client.kafka.connection import (
    CREATE_TOPICS,
    FIND_COORDINATOR,
    METADATA,
    Address,
    Connection,
)
from magnetar.client.kafka.entrance import Entrance
from magnetar.client.kafka.errors import (
    ConnectionLost,
    Fenced,
    KafkaClientError,
    NotInTime,
    Refused,
    UnknownTopic,
)
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

BACK_OFF_MIN_S: Final = 0.02
BACK_OFF_MAX_S: Final = 1.0
UNKNOWN_TOPIC_PATIENCE_S: Final = 3.0  # what a cluster may take to create a missing topic
_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Patience:
    """Waits longer each time, and gives up at a deadline."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._back_off_s = BACK_OFF_MIN_S

    def wait(self, what: str, why: object) -> None:
        """Wait before the next attempt.  Raises NotInTime if there is no time left."""
        if time.monotonic() + self._back_off_s > self._deadline:
            raise NotInTime(f"{what} was not possible in the time allowed: {why}")
        time.sleep(self._back_off_s)
        self._back_off_s = min(2 * self._back_off_s, BACK_OFF_MAX_S)


def error_of(code: int) -> ErrorCode:
    """The error code of a response; UNKNOWN_SERVER_ERROR if this client does not know it."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def refusal(what: str, code: ErrorCode, detail: str | None = None) -> Refused:
    return (Fenced if code in _FENCED else Refused)(what, code, detail)


class Cluster:
    """See the module's text.

    bootstrap  `host:port,host:port`, as in `bootstrap.servers`
    patience_s how long a request may be repeated
    entrance   TLS and login of each new connection; None if brokers require neither
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "magnetar",
        request_timeout_s: float = 30.0,
        patience_s: float = 120.0,
        entrance: Entrance | None = None,
    ) -> None:
        self._bootstrap = parse_addresses(bootstrap)
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self.patience_s = patience_s
        self._entrance = entrance
        self._nodes: dict[int, Address] = {}
        self._controller = -1
        self._connections: dict[tuple[Address, bool], Connection] = {}
        self._leaders: dict[str, list[int]] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], Address] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- topics ------------------------------------------------------------------------------------------------------

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has.  Raises UnknownTopic, NotInTime, Refused."""
        leaders = self._leaders.get(topic)
        if leaders is None:
            self.refresh([topic])
            leaders = self._leaders[topic]
        return len(leaders)

    def leader(self, topic: str, partition: int) -> int:
        """The id of the node that leads a partition, by the last answer.  Raises UnknownTopic, NotInTime, Refused."""
        count = self.partition_count(topic)
        if not 0 <= partition < count:
            raise UnknownTopic(f"topic '{topic}' has {count} partitions, there is no partition {partition}")
        return self._leaders[topic][partition]

    def refresh(self, topics: Iterable[str]) -> None:
        """Ask for the leaders of the partitions of `topics`; the cluster may create missing topics.

        Raises:
            UnknownTopic, NotInTime, Refused.
        """
        wanted = sorted(set(topics))
        patience = Patience(self.patience_s)
        missing = Patience(UNKNOWN_TOPIC_PATIENCE_S)
        while True:
            code, topic = self._learn(wanted, patience)
            if code is ErrorCode.NONE:
                return
            what = f"finding out about topic '{topic}'"
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                try:
                    missing.wait(what, code.name)
                except NotInTime:
                    raise UnknownTopic(
                        f"topic '{topic}' does not exist: create it, or correct its name"
                    ) from None
            elif code.retriable:
                patience.wait(what, code.name)
            else:
                raise refusal(what, code)

    def _learn(self, wanted: list[str], patience: Patience) -> tuple[ErrorCode, str]:
        """Ask once; returns the error and name of the first topic with an error."""
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in wanted])
        answer = self._ask_any_node(METADATA, request, patience)
        self._nodes = {node.node_id: Address(node.host, node.port) for node in answer.brokers}
        self._controller = answer.controller_id
        for topic in answer.topics:
            code = error_of(topic.error_code)
            leaders = [-1] * len(topic.partitions)
            for partition in topic.partitions:
                if not 0 <= partition.partition_index < len(leaders):
                    code = ErrorCode.UNKNOWN_SERVER_ERROR
                elif partition.leader_id in self._nodes:
                    leaders[partition.partition_index] = partition.leader_id
            if code is ErrorCode.NONE and (not leaders or -1 in leaders):
                code = ErrorCode.LEADER_NOT_AVAILABLE
            if code is not ErrorCode.NONE:
                self._leaders.pop(topic.name, None)
                return code, topic.name
            self._leaders[topic.name] = leaders
        return ErrorCode.NONE, ""

    def create_topic(self, topic: str, partition_count: int) -> None:
        """Create a topic, unless it exists.  Raises NotInTime, Refused."""
        request = CreateTopicsRequest([CreatableTopic(topic, partition_count, -1)], timeout_ms=10_000)

        def code(answer: Any) -> ErrorCode:
            found = error_of(answer.topics[0].error_code)
            return ErrorCode.NONE if found is ErrorCode.TOPIC_ALREADY_EXISTS else found

        def controller() -> Connection:
            self._learn([], Patience(self.patience_s))
            return self.node(self._controller)

        self.ask(f"creating topic '{topic}'", controller, CREATE_TOPICS, request, code)

    # --- connections -------------------------------------------------------------------------------------------------

    def node(self, node_id: int, *, for_data: bool = False) -> Connection:
        """An open connection to a node.  Raises ConnectionLost.

        A node may have two connections: with `for_data` the one on which a producer has requests in flight.  The
        other one never has any.
        """
        address = self._nodes.get(node_id)
        if address is None:
            raise ConnectionLost(f"the cluster names no address of node {node_id}")
        return self._connection(address, for_data=for_data)

    def every_node(self) -> Iterator[Connection]:
        """Yields a connection to each node of the cluster that can be reached now.  Raises NotInTime."""
        self._learn([], Patience(self.patience_s))
        for node_id in sorted(self._nodes):
            try:
                yield self.node(node_id)
            except ConnectionLost:
                continue

    def any_node(self) -> Connection:
        """A connection to any broker.  Raises ConnectionLost if none can be reached."""
        lost = ConnectionLost("no broker is known")
        for address in dict.fromkeys([*self._nodes.values(), *self._bootstrap]):
            try:
                return self._connection(address)
            except ConnectionLost as failure:
                lost = failure
        raise lost

    def drop(self, node_id: int) -> None:
        """Close the connection on which a producer has requests in flight; their answers are lost."""
        address = self._nodes.get(node_id)
        known = None if address is None else self._connections.pop((address, True), None)
        if known is not None:
            known.close()

    def _connection(self, address: Address, *, for_data: bool = False) -> Connection:
        known = self._connections.get((address, for_data))
        if known is None or known.has_ended:
            if known is not None:
                known.close()
            known = Connection(address, self._client_id, self._request_timeout_s, self._entrance)
            self._connections[address, for_data] = known
        return known

    def coordinator(self, kind: CoordinatorKind, key: str) -> Connection:
        """A connection to the coordinator of a group or a transactional id.  Raises ConnectionLost, Refused."""
        address = self._coordinators.get((kind, key))
        if address is None:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            answer = self._ask_any_node(FIND_COORDINATOR, request, Patience(self.patience_s))
            code = error_of(answer.error_code)
            if code.retriable:
                raise ConnectionLost(f"no broker coordinates '{key}' now: {code.name}")
            if code is not ErrorCode.NONE:
                raise refusal(f"finding the coordinator of '{key}'", code, answer.error_message)
            address = self._coordinators[kind, key] = Address(answer.host, answer.port)
        return self._connection(address)

    def _ask_any_node(self, api_key: int, request: object, patience: Patience) -> Any:
        """The answer of the first broker that answers."""
        while True:
            try:
                return self.any_node().call(api_key, request)
            except ConnectionLost as lost:
                patience.wait(f"reaching a broker of {', '.join(map(str, self._bootstrap))}", lost)

    def ask_any_node(self, api_key: int, request: object) -> Any:
        """The answer of any broker; the caller checks its error codes.  Raises NotInTime."""
        return self._ask_any_node(api_key, request, Patience(self.patience_s))

    # --- requests that may be sent again ----------------------------------------------------------------------------

    def ask(
        self,
        what: str,
        where: Callable[[], Connection],
        api_key: int,
        request: object,
        code_of: Callable[[Any], ErrorCode],
    ) -> Any:
        """Send a request that is harmless to repeat to `where()`, until the code of the answer is NONE; returns that
        answer.

        Raises:
            NotInTime: temporary errors came until the time was over.
            Fenced, Refused: the error is permanent.
        """
        patience = Patience(self.patience_s)
        while True:
            why: object
            try:
                answer = where().call(api_key, request)
                code = code_of(answer)
                if code is ErrorCode.NONE:
                    return answer
                if not code.retriable:
                    raise refusal(what, code)
                why = code.name
            except ConnectionLost as lost:
                why, code = lost, ErrorCode.NETWORK_EXCEPTION
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._coordinators.clear()
            patience.wait(what, why)


def parse_addresses(bootstrap: str) -> list[Address]:
    """The addresses in `host:port,[v6]:port`.  Raises KafkaClientError."""
    addresses = []
    for part in filter(None, (part.strip() for part in bootstrap.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise KafkaClientError(f"'{part}' is not host:port")
        addresses.append(Address(host.strip("[]"), int(port)))
    if not addresses:
        raise KafkaClientError("no broker is named: give host:port")
    return addresses
