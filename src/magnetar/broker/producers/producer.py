"""One producer of a partition: what it says about itself, and how its session learns what happens to it."""

from typing import Protocol

from magnetar.base.errors import BrokerError
from magnetar.broker.producers.model import ProducerSpec


class ProducerPort(Protocol):
    """The producer's side of the door: its protocol implements it."""

    def ready(self) -> None:
        """The producer waited for exclusive access, and has it now."""
        ...

    def closed(self) -> None:
        """The broker has removed the producer: the session notifies its client, which may reconnect."""
        ...

    def refused(self, error: BrokerError) -> None:
        """The producer waited for exclusive access, and does not get it."""
        ...

    async def is_alive(self) -> bool:
        """Whether its client is connected.  False: the connection turned out to be dead, and is closed."""
        ...


class Producer:
    """One producer as it asks to be admitted.

    `topic_epoch` is what its client believes, as `ProducerSpec` says; once the producer is ready it is what holds, None
    when there never was an exclusive one.
    """

    __slots__ = (
        "bytes_in",
        "connected_since_ms",
        "epoch",
        "is_ready",
        "is_user_named",
        "messages_in",
        "mode",
        "name",
        "origin",
        "port",
        "topic_epoch",
    )

    def __init__(self, spec: ProducerSpec, port: ProducerPort, connected_since_ms: int) -> None:
        self.name = spec.name
        self.epoch = spec.epoch
        self.is_user_named = spec.is_user_named
        self.mode = spec.mode
        self.topic_epoch = spec.topic_epoch
        self.origin = spec.origin
        self.port = port
        self.connected_since_ms = connected_since_ms
        self.is_ready = False
        self.messages_in = 0
        self.bytes_in = 0
