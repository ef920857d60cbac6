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
from struct import Struct
from typing import Any, Final
from urllib.parse import quote, urlsplit

from magnetar.base.errors import MagnetarError, WireError
from magnetar.client.errors import ClientError, Refused
from magnetar.client.http import HttpClient
from magnetar.client.login import Login
from magnetar.wire.pulsar.commands import PROTOCOL_VERSION, frame_command, read_command
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandConnect,
    CommandPong,
    CommandSubscribe,
)

log: Final = logging.getLogger(__name__)

CLIENT: Final = "magnetar-replicator"
ANSWER_S: Final = 10.0
AGAIN_S: Final = 1.0
LOOK_EVERY_S: Final = 30.0  # whether the topic has more partitions
_FRAME_BYTES_MAX: Final = 1 << 20
_SIZE: Final = Struct(">I")
_PONG: Final = frame_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))


class _Lost(MagnetarError):
    """The connection is of no use any more."""


class StandingConsumer:
    """Stands on `subscription` of `topic` (a full name) of the server at the HTTP address `url` until `close`.

    A server that cannot be asked where its Pulsar port is, because clients have to log in there, shows no consumer.
    """

    def __init__(self, url: str, login: Login, topic: str, subscription: str, name: str) -> None:
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
            except Refused as error:
                if error.status == 401:
                    log.info("%s shows no consumer of its subscription: clients have to log in", self._name)
                    return
                trouble = str(error)
            except (ClientError, WireError, OSError, _Lost) as error:
                trouble = str(error)
            else:
                continue
            if trouble != said:
                log.info("%s has no consumer on its subscription: %s; it tries again", self._name, trouble)
                said = trouble
            self._stop.wait(AGAIN_S)

    def _connected(self) -> None:
        """Stand for the length of one connection, or until the topic has another number of partitions."""
        partitions = self._partitions()
        with socket.create_connection(self._address(), ANSWER_S) as connected:
            line = _Line(connected)
            connect = CommandConnect(client_version=CLIENT, protocol_version=PROTOCOL_VERSION)
            line.ask(BaseCommand(type=BaseCommand.CONNECT, connect=connect), BaseCommand.CONNECTED)
            for number, topic in enumerate(partitions):
                line.ask(self._subscribe(number, topic), BaseCommand.SUCCESS)
            look_at = time.monotonic() + LOOK_EVERY_S
            while not self._stop.is_set():
                line.listen()
                if time.monotonic() > look_at:
                    if self._partitions() != partitions:
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

    def _partitions(self) -> list[str]:
        """What consumers of the topic subscribe to."""
        path = f"/admin/v2/{_in_path(self._topic)}/partitions"
        count = int(self._http.get_json(path)["partitions"])
        return [f"{self._topic}-partition-{number}" for number in range(count)] or [self._topic]

    def _address(self) -> tuple[str, int]:
        """Where the server's Pulsar port is."""
        found: Any = self._http.get_json(f"/lookup/v2/topic/{_in_path(self._topic)}")
        parts = urlsplit(found.get("brokerUrl") or "")
        if parts.hostname is None or parts.port is None:
            raise _Lost("the server has no Pulsar port without TLS")
        return parts.hostname, parts.port


class _Line:
    """Commands over one connection, one at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._socket.settimeout(AGAIN_S)
        self._read = b""

    def ask(self, command: BaseCommand, answer: "BaseCommand.Type") -> None:
        """Raises _Lost: there is another answer, or none."""
        self._socket.sendall(frame_command(command))
        give_up_at = time.monotonic() + ANSWER_S
        while time.monotonic() < give_up_at:
            found = self._next()
            if found is None:
                continue
            kind, body = found
            if kind == answer:
                return
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
