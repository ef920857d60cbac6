"""One topic that goes through lives, whatever protocol writes to it: see lives_load.py."""

import random
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tests.crash.power.trace import mark
from tests.crash.server import child
from tests.crash.server.lives import (
    encode,
)

RETRY_S = 0.02
REQUEST_TIMEOUT_S = 20.0
BURST_MAX = 30
LARGE_EVERY = 40

_marks: Path | None = None


def mark_events_in(path: Path) -> None:
    """From now on append what is said to this file, too, as marks of `tests.crash.power.trace`."""
    global _marks
    _marks = path


def say(**event: Any) -> None:
    if _marks is not None:
        mark(_marks, event)
    child.say(**event)


class Topic(threading.Thread, ABC):
    """One topic's lives, one step after the other."""

    def __init__(self, name: str, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.topic = name
        self.life = 0
        self.choose = random.Random(f"{seed} {name}")
        self.bootstrap = bootstrap
        self._wanted = threading.Event()
        self._wanted.set()
        self._resting = threading.Event()

    def run(self) -> None:
        try:
            while True:
                self._live()
        except BaseException as error:
            say(broken=f"{self.topic}: {type(error).__name__}: {error}")
            raise

    def pause(self) -> None:
        self._wanted.clear()

    def wait_until_paused(self) -> None:
        self._resting.wait()

    def resume(self) -> None:
        self._resting.clear()
        self._wanted.set()

    def _live(self) -> None:
        self.life += 1
        say(life=[self.topic, self.life, "creating"])
        self.create()
        say(life=[self.topic, self.life, "created"])
        self.begin()
        for _ in range(self.choose.randrange(2, 14)):
            if not self._wanted.is_set():
                self.write()
                self._resting.set()
                self._wanted.wait()
            self.step()
        self.end()
        say(life=[self.topic, self.life, "deleting"])
        self.delete()
        say(life=[self.topic, self.life, "deleted"])

    @abstractmethod
    def create(self) -> None: ...
    @abstractmethod
    def delete(self) -> None: ...
    @abstractmethod
    def begin(self) -> None: ...
    @abstractmethod
    def write(self) -> None:
        """Records; the last thing before a pause, so that there is something to lose."""

    @abstractmethod
    def step(self) -> None: ...
    @abstractmethod
    def end(self) -> None: ...

    def payload(self, partition: int, number: int) -> bytes:
        large = self.choose.randrange(LARGE_EVERY) == 0
        size = self.choose.randrange(32 << 10, 256 << 10) if large else self.choose.randrange(1, 2000)
        return encode(self.topic, self.life, partition, number, self.choose.randbytes(size))
