"""A consumer of Pulsar's that takes no message: it shows that a subscription is in use, and lets no other consumer in.

A replicator reads records in its own way, and moves its subscription over REST.  Without a consumer, `pulsar-admin`
would show a subscription that nothing works off, and any client could take messages of it.

One thread holds one connection with a consumer for each partition.  It gives no permits, so the server sends nothing.
It connects again when the connection is lost, or when the topic has got more partitions.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable
from struct import Struct
from typing import Any, Final
from urllib.parse import quote, urlsplit

from magnetar.base.errors import ConfigError, MagnetarError, WireError
from magnetar.client.errors import ClientError
from magnetar.client.http import HttpClient
from magnetar.client.login import Login
from magnetar.wire.pulsar.commands import PROTOCOL_VERSION, frame_command, read_command
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandCloseConsumer,
    CommandConnect,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    CommandPong,
    CommandSubscribe,
)

log: Final = logging.getLogger(__name__)

CLIENT: Final = "magnetar-replicator"
ANSWER_S: Final = 10.0
AGAIN_S: Final = 1.0
LOOK_EVERY_S: Final = 30.0  # whether the topic has more partitions
_METHOD: Final = "token"
_FRAME_BYTES_MAX: Final = 1 << 20
_SIZE: Final = Struct(">I")
_PONG: Final = frame_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))


class _Lost(MagnetarError):
    """The connection is of no use any more."""


class StandingConsumer:
    """Stands on `subscription` of `topic` (a full name) of the server at the HTTP address `url` until `close`.

    It logs in with the token of `login` at both ports; over HTTPS it takes the Pulsar port with TLS, too.
    """

    def __init__(self, url: str, login: Login, topic: str, subscription: str, name: str) -> None:
        self._login = login
        self._http = HttpClient(url, read_s=ANSWER_S, retry_s=0.0, login=login)
        self._topic = topic
        self._subscription = subscription
        self._name = name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._stand, name=f"consumer of {name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Return when the server has no consumer of this one any more, or does not answer."""
        self._stop.set()
        self._thread.join(2 * ANSWER_S)
        self._http.close()

    # --- inside

    def _stand(self) -> None:
        said = ""
        while not self._stop.is_set():
            try:
                self._connected()
            except (ClientError, ConfigError, WireError, OSError, _Lost) as error:
                trouble = str(error)
            else:
                continue
            if trouble != said:
                log.info("%s has no consumer on its subscription: %s; it tries again", self._name, trouble)
                said = trouble
            self._stop.wait(AGAIN_S)

    def _connected(self) -> None:
        """Stand for the length of one connection, or until the topic has another number of partitions."""
        with self._connection() as connected:
            line = _Line(connected, self._token)
            line.ask(BaseCommand(type=BaseCommand.CONNECT, connect=self._connect()), BaseCommand.CONNECTED)
            partitions = self._partitions(line)
            for number, topic in enumerate(partitions):
                line.ask(self._subscribe(number, topic), BaseCommand.SUCCESS)
            look_at = time.monotonic() + LOOK_EVERY_S
            while not self._stop.is_set():
                line.listen()
                if time.monotonic() > look_at:
                    if self._partitions(line) != partitions:
                        break
                    look_at = time.monotonic() + LOOK_EVERY_S
            for number in range(len(partitions)):
                closing = CommandCloseConsumer(consumer_id=number, request_id=len(partitions) + number)
                command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=closing)
                line.ask(command, BaseCommand.SUCCESS)

    def _subscribe(self, number: int, topic: str) -> BaseCommand:
        subscribing = CommandSubscribe(
            topic=topic,
            subscription=self._subscription,
            subType=CommandSubscribe.Exclusive,
            consumer_id=number,
            request_id=number,
            consumer_name=self._name,
            durable=True,
            # Whichever of the two comes first, this or the query: nothing that is there is passed over.
            initialPosition=CommandSubscribe.Earliest,
            force_topic_creation=False,
        )
        return BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribing)

    def _partitions(self, line: "_Line") -> list[str]:
        """What consumers of the topic subscribe to."""
        asked = CommandPartitionedTopicMetadata(
            topic=self._topic, request_id=0, metadata_auto_creation_enabled=False
        )
        command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)
        found = line.ask(command, BaseCommand.PARTITIONED_METADATA_RESPONSE)
        if found.response != CommandPartitionedTopicMetadataResponse.Success:
            raise _Lost(found.message)
        return [f"{self._topic}-partition-{number}" for number in range(found.partitions)] or [self._topic]

    def _connect(self) -> CommandConnect:
        connect = CommandConnect(client_version=CLIENT, protocol_version=PROTOCOL_VERSION)
        connect.feature_flags.supports_auth_refresh = True
        token = self._token()
        if token:
            connect.auth_method_name, connect.auth_data = _METHOD, token.encode()
        return connect

    def _token(self) -> str:
        """The token as it is now: the worker replaces it in time."""
        self._login.has_another_token()
        return self._login.token

    def _connection(self) -> socket.socket:
        """A connection to the server's Pulsar port."""
        found: Any = self._http.get_json(f"/lookup/v2/topic/{_in_path(self._topic)}")
        is_safe = self._http.url.startswith("https:")
        parts = urlsplit(found.get("brokerUrlTls" if is_safe else "brokerUrl") or "")
        if parts.hostname is None or parts.port is None:
            raise _Lost(f"the server has no Pulsar port {'with' if is_safe else 'without'} TLS")
        connected = socket.create_connection((parts.hostname, parts.port), ANSWER_S)
        if not is_safe:
            return connected
        try:
            return self._login.trusting().wrap_socket(connected, server_hostname=parts.hostname)
        except (OSError, ConfigError):
            connected.close()
            raise


class _Line:
    """Commands over one connection, one at a time.  `token` is what it shows when the server asks for it anew."""

    def __init__(self, connected: socket.socket, token: Callable[[], str]) -> None:
        self._socket = connected
        self._token = token
        self._socket.settimeout(AGAIN_S)
        self._read = b""

    def ask(self, command: BaseCommand, answer: "BaseCommand.Type") -> Any:
        """The answer.  Raises _Lost: there is another one, or none."""
        self._socket.sendall(frame_command(command))
        give_up_at = time.monotonic() + ANSWER_S
        while time.monotonic() < give_up_at:
            found = self._next()
            if found is None:
                continue
            kind, body = found
            if kind == answer:
                return body
            if kind == BaseCommand.ERROR:
                raise _Lost(body.message)
            self._not_asked(kind)
        raise _Lost("the server does not answer")

    def listen(self) -> None:
        """Take what the server says by itself, for a second at most; raises _Lost when it closes a consumer."""
        found = self._next()
        if found is not None:
            self._not_asked(found[0])

    def _not_asked(self, kind: "BaseCommand.Type") -> None:
        if kind == BaseCommand.PING:
            self._socket.sendall(_PONG)
        elif kind == BaseCommand.AUTH_CHALLENGE:
            shown = AuthData(auth_method_name=_METHOD, auth_data=self._token().encode())
            response = CommandAuthResponse(client_version=CLIENT, response=shown)
            command = BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=response)
            self._socket.sendall(frame_command(command))
        elif kind == BaseCommand.CLOSE_CONSUMER:
            raise _Lost("the server has closed the consumer")

    def _next(self) -> tuple["BaseCommand.Type", Any] | None:
        """The next command; None if there was none for a second."""
        while True:
            if len(self._read) >= _SIZE.size:
                (size,) = _SIZE.unpack_from(self._read)
                if size > _FRAME_BYTES_MAX:
                    raise WireError(f"a frame of {size} bytes")
                end = _SIZE.size + size
                if len(self._read) >= end:
                    frame, self._read = self._read[_SIZE.size : end], self._read[end:]
                    kind, body, _ = read_command(memoryview(frame))
                    return kind, body
            try:
                more = self._socket.recv(1 << 16)
            except TimeoutError:
                return None
            if not more:
                raise _Lost("the server has closed the connection")
            self._read += more


def _in_path(topic: str) -> str:
    """`persistent://tenant/namespace/name` as paths have it."""
    domain, _, rest = topic.partition("://")
    tenant, namespace, name = rest.split("/", 2)
    return "/".join([domain, tenant, namespace, quote(name, safe="")])
