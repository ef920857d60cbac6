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
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote, urlsplit

from magnetar.base.errors import ConfigError, MagnetarError, WireError
from magnetar.client.errors import ClientError
from magnetar.client.http import HttpClient
from magnetar.client.login import Login
from magnetar.client.pulsar_line import ANSWER_S, PulsarLine, connection_to
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    CommandSubscribe,
)

log: Final = logging.getLogger(__name__)

CLIENT: Final = "magnetar-replicator"
AGAIN_S: Final = 1.0
LOOK_EVERY_S: Final = 30.0  # whether the topic has more partitions


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
            except (ClientError, ConfigError, WireError, _Lost) as error:
                trouble = str(error)
            else:
                continue
            if trouble != said:
                log.info("%s has no consumer on its subscription: %s; it tries again", self._name, trouble)
                said = trouble
            self._stop.wait(AGAIN_S)

    def _connected(self) -> None:
        """Stand for the length of one connection, or until the topic has another number of partitions."""
        with closing(PulsarLine(self._connection(), CLIENT, self._token)) as line:
            line.log_in()
            partitions = self._partitions(line)
            for number, topic in enumerate(partitions):
                line.ask(self._subscribe(number, topic), BaseCommand.SUCCESS)
            look_at = time.monotonic() + LOOK_EVERY_S
            while not self._stop.is_set():
                said = line.next()
                if said is not None and said.kind == BaseCommand.CLOSE_CONSUMER:
                    raise _Lost("the server has closed the consumer")
                if time.monotonic() > look_at:
                    if self._partitions(line) != partitions:
                        break
                    look_at = time.monotonic() + LOOK_EVERY_S
            for number in range(len(partitions)):
                leaving = CommandCloseConsumer(consumer_id=number, request_id=len(partitions) + number)
                command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=leaving)
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

    def _partitions(self, line: PulsarLine) -> list[str]:
        """What consumers of the topic subscribe to."""
        asked = CommandPartitionedTopicMetadata(
            topic=self._topic, request_id=0, metadata_auto_creation_enabled=False
        )
        command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)
        found = line.ask(command, BaseCommand.PARTITIONED_METADATA_RESPONSE)
        if found.response != CommandPartitionedTopicMetadataResponse.Success:
            raise _Lost(found.message)
        return [f"{self._topic}-partition-{number}" for number in range(found.partitions)] or [self._topic]

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
        return connection_to((parts.hostname, parts.port), self._login, with_tls=is_safe)


def _in_path(topic: str) -> str:
    """`persistent://tenant/namespace/name` as paths have it."""
    domain, _, rest = topic.partition("://")
    tenant, namespace, name = rest.split("/", 2)
    return "/".join([domain, tenant, namespace, quote(name, safe="")])
