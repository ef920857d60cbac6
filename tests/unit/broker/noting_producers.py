"""Producers of a partition without a client: a port that notes what it hears, and epochs that a test can hold up."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from magnetar.base.errors import BrokerError, MetadataError
from magnetar.broker.producers.model import AccessMode, ProducerSpec
from magnetar.broker.producers.producer import Producer

SHARED = AccessMode.SHARED


class Epochs:
    """Keeps an epoch; fails or waits when a test says so."""

    def __init__(self, epoch: int | None = None) -> None:
        self.epoch = epoch
        self.fails = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self) -> int | None:
        found = self.epoch
        await self.gate.wait()
        return found

    async def store(self, epoch: int) -> None:
        await self.gate.wait()
        if self.fails:
            raise MetadataError("no")
        self.epoch = epoch


class Port:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.when_dead: Callable[[], None] | None = None

    def ready(self) -> None:
        self.events.append("ready")

    def closed(self) -> None:
        self.events.append("closed")

    def refused(self, error: BrokerError) -> None:
        self.events.append(f"refused: {error}")

    async def is_alive(self) -> bool:
        await asyncio.sleep(0)
        if self.when_dead is not None:
            self.when_dead()
        return self.when_dead is None


def producer(
    name: str,
    mode: AccessMode = SHARED,
    *,
    epoch: int = 0,
    user_named: bool = False,
    topic_epoch: int | None = None,
) -> Producer:
    return Producer(ProducerSpec(name, epoch, user_named, mode, topic_epoch), Port(), 0)


def events(one: Producer) -> list[str]:
    assert isinstance(one.port, Port)
    return one.port.events


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
