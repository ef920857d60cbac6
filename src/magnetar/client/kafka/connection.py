"""One blocking connection to one broker; responses come in the order of requests.

Requests may be pipelined: `send` several, then `receive` as many.  Each API uses the newest version that the broker
and this client (`VERSIONS`) know.  Every failure closes the connection and raises `ConnectionLost`.  The broker may
or may not have carried out requests in flight, and the caller decides whether to repeat them.
"""

import math
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from magnetar.base.errors import WireError
from magnetar.client.kafka.entrance import Entrance
from magnetar.client.kafka.errors import ConnectionLost, KafkaClientError
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.header import decode_response_header, encode_request_header
from magnetar.wire.kafka.messages import NAMES, asking
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from magnetar.wire.kafka.runtime import Buffer

RESPONSE_BYTES_MAX: Final = 64 << 20
_PARTS_MAX: Final = 512  # in one system call; the kernel accepts 1,024
_LIFE_SHARE: Final = 0.7  # of a login's validity, after which a new connection is opened
_SIZE: Final = Struct(">i")

PRODUCE: Final = 0
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
END_TXN: Final = 26
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
SASL_AUTHENTICATE: Final = 36
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
LIST_TRANSACTIONS: Final = 66

# The oldest and newest version that this client uses.  Newer versions do without AddPartitionsToTxn and raise the epoch
# with each transaction (KIP-890), name topics by id, or ask for many groups at once.  OffsetCommit v4 is the last
# version with a retention time.
VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    PRODUCE: (3, 9),
    METADATA: (4, 9),
    OFFSET_COMMIT: (2, 4),
    OFFSET_FETCH: (2, 7),
    FIND_COORDINATOR: (1, 3),
    SASL_HANDSHAKE: (1, 1),
    API_VERSIONS: (0, 0),
    CREATE_TOPICS: (4, 5),
    INIT_PRODUCER_ID: (0, 4),
    ADD_PARTITIONS_TO_TXN: (0, 3),
    END_TXN: (0, 3),
    DESCRIBE_ACLS: (1, 3),
    CREATE_ACLS: (1, 3),
    DELETE_ACLS: (1, 3),
    SASL_AUTHENTICATE: (0, 1),
    DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    LIST_TRANSACTIONS: (0, 0),
}


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class _Awaited(NamedTuple):
    correlation_id: int
    api_key: int
    version: int


class Connection:
    """See the module's text.

    Raises:
        ConnectionLost: no broker answers there within `timeout_s`.
        KafkaClientError: there is no common version of an API, or the broker refuses the login.
        ConfigError: the token cannot be read.
    """

    def __init__(
        self, address: Address, client_id: str, timeout_s: float, entrance: Entrance | None = None
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._awaited: deque[_Awaited] = deque()
        self._correlation_id = 0
        self._versions: dict[int, int] = {API_VERSIONS: 0}
        self.is_open = False
        self._renew_s = math.inf  # when to open another connection, before the login ends
        try:
            self._socket = _connected(address, timeout_s, entrance)
        except OSError as error:
            raise ConnectionLost(f"no connection to {address}: {error}") from error
        self.is_open = True
        self._agree()
        if entrance is not None:
            self._log_in(entrance)

    def _agree(self) -> None:
        answer = self.call(API_VERSIONS, ApiVersionsRequest())
        if answer.error_code != ErrorCode.NONE:
            self.close()
            raise KafkaClientError(f"{self.address} does not say which versions it speaks")
        for offered in answer.api_keys:
            oldest, newest = VERSIONS.get(offered.api_key, (0, -1))
            version = min(newest, offered.max_version)
            if version >= max(oldest, offered.min_version):
                self._versions[offered.api_key] = version

    def _log_in(self, entrance: Entrance) -> None:
        try:
            shown = entrance.shown
            if shown is None:
                return
            began_s = time.monotonic()
            shaken = self.call(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=shown.mechanism))
            if shaken.error_code != ErrorCode.NONE:
                offered = ", ".join(shaken.mechanisms) or "nothing"
                raise KafkaClientError(
                    f"{self.address} does not take tokens by {shown.mechanism}, but {offered}"
                )
            answer = self.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=shown.message))
            if answer.error_code != ErrorCode.NONE:
                raise entrance.refused(self.address, answer.error_message or "without a reason")
            if answer.session_lifetime_ms > 0:
                self._renew_s = began_s + _LIFE_SHARE * answer.session_lifetime_ms / 1000
        except BaseException:
            self.close()
            raise

    @property
    def in_flight(self) -> int:
        """How many responses are still to come."""
        return len(self._awaited)

    @property
    def has_ended(self) -> bool:
        """Whether the caller must open another one: it is closed, or its login ends soon and nothing is in flight."""
        return not self.is_open or (not self._awaited and time.monotonic() > self._renew_s)

    def speaks(self, api_key: int) -> bool:
        """Whether both sides have a common version of an API."""
        return api_key in self._versions

    def version(self, api_key: int) -> int:
        """The version of an API to use.  Raises KafkaClientError if there is no common one."""
        try:
            return self._versions[api_key]
        except KeyError:
            raise KafkaClientError(
                f"{self.address} speaks no version of {NAMES[api_key]} that this client knows"
            ) from None

    def call(self, api_key: int, request: object) -> Any:
        """Send one request and wait for its response; nothing else may be in flight."""
        assert not self._awaited, self._awaited
        try:
            self.send(api_key, request)
            return self.receive()
        except BaseException:
            self.close()  # a late answer must not be taken for the answer to the next request
            raise

    def send(self, api_key: int, request: object, *, is_answered: bool = True) -> None:
        """Send a request without waiting for its response; `is_answered` is False for Produce with acks 0."""
        version = self.version(api_key)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        header = encode_request_header(api_key, version, self._correlation_id, self._client_id)
        parts: list[Buffer] = [b"", header]
        asking.load(api_key).encode_request(version, request, parts)
        parts[0] = _SIZE.pack(sum(map(len, parts)))
        self._write(parts)
        if is_answered:
            self._awaited.append(_Awaited(self._correlation_id, api_key, version))

    def receive(self) -> Any:
        """The response to the oldest request in flight; waits at most for the time-out."""
        awaited = self._awaited.popleft()
        deadline = time.monotonic() + self._timeout_s
        (size,) = _SIZE.unpack(self._read(4, deadline))
        if not 4 <= size <= RESPONSE_BYTES_MAX:
            raise self._lost(f"sent a response of {size} bytes")
        frame = self._read(size, deadline)
        try:
            correlation_id, position = decode_response_header(frame, awaited.api_key, awaited.version)
            if correlation_id != awaited.correlation_id:
                raise WireError(f"response {correlation_id} instead of {awaited.correlation_id}")
            return asking.load(awaited.api_key).decode_response(awaited.version, frame, position)
        except WireError as error:
            raise self._lost(f"sent what cannot be read: {error}") from error

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._awaited.clear()
            self._socket.close()

    def _write(self, parts: list[Buffer]) -> None:
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        views = [memoryview(part) for part in parts]
        at = 0
        try:
            if isinstance(self._socket, ssl.SSLSocket):  # TLS sends one part at a time
                self._socket.sendall(b"".join(views))
                return
            while at < len(views):
                written = self._socket.sendmsg(views[at : at + _PARTS_MAX])
                while at < len(views) and written >= len(views[at]):
                    written -= len(views[at])
                    at += 1
                if written:
                    views[at] = views[at][written:]
        except OSError as error:
            raise self._lost(str(error)) from error

    def _read(self, size: int, deadline: float) -> memoryview:
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        view = memoryview(bytearray(size))
        at = 0
        try:
            while at < size:
                received = self._socket.recv_into(view[at:])
                if not received:
                    raise self._lost("closed it")
                at += received
                if time.monotonic() > deadline:
                    raise self._lost(f"did not answer within {self._timeout_s:g} s")
        except OSError as error:
            raise self._lost(str(error)) from error
        return view

    def _lost(self, why: str) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"the connection to {self.address} was lost: {why}")


def _connected(address: Address, timeout_s: float, entrance: Entrance | None) -> socket.socket:
    """A connected socket, with TLS if necessary.  Raises OSError, KafkaClientError."""
    connected = socket.create_connection(address, timeout_s)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected if entrance is None else entrance.secured(connected, address.host)
    except BaseException:
        connected.close()
        raise
