"""The producers of an instance, by topic: made at first use, and kept.

A message leaves at once while no other is on its way.  Those that are sent meanwhile leave together, when all that were
on their way are stored.  So a message that comes alone waits for nothing, and the slower the server, the larger the
batches.  No message waits longer than `BATCH_DELAY_MS`.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pulsar

from magnetar.functions.schemas import BYTES

BATCH_DELAY_MS: Final = 10

OnSent = Callable[[Any, Any], None]


class Outlet:
    """A producer of one topic; threads share it.  See the module's text."""

    def __init__(self, producer: Any) -> None:
        """`producer` makes batches."""
        self._producer = producer
        # Not held while the client is called, which calls back from its own thread.
        self._state = threading.Condition()
        # The client was told to send all that it has, and has not said yet that it is stored.
        self._is_flying = False
        self._waits = False  # something was given to the client since
        self._given = 0  # messages
        self._answered = 0
        self._here = _Here()

    def send_async(self, content: bytes, sent: OnSent | None, **settings: Any) -> None:
        """Send a message, and call `sent` with its result and its id.  Raises what the client raises."""
        self._producer.send_async(content, partial(self._is_answered, sent), **settings)
        with self._state:
            self._given += 1
            self._waits = self._is_flying
            leaves = not self._is_flying
            self._is_flying = True
        if leaves:
            self._leave()

    def flush(self) -> None:
        """Return when all messages that were sent before are stored, or have failed."""
        with self._state:
            given = self._given
            self._state.wait_for(lambda: self._answered >= given)

    def _is_answered(self, sent: OnSent | None, result: Any, message_id: Any) -> None:
        if sent is not None:
            sent(result, message_id)
        with self._state:
            self._answered += 1
            self._state.notify_all()

    def _leave(self) -> None:
        """Have all leave that waits.  One thread at a time is here: two would confuse a producer of partitions."""
        while True:
            self._here.is_leaving, self._here.has_landed = True, False
            # The producer's own `flush` would wait here.  The library's asyncio part calls this one, too.
            self._producer._producer.flush_async(self._lands)
            self._here.is_leaving = False
            if not self._here.has_landed or not self._goes_on(is_stored=True):
                return

    def _lands(self, result: Any) -> None:
        """The client calls this when all that has left is stored or has failed; at once, if there was nothing."""
        if self._here.is_leaving:
            self._here.has_landed = True  # the client may call it under a lock that its `flush_async` takes
        elif self._goes_on(is_stored=result == pulsar.Result.Ok):
            self._leave()

    def _goes_on(self, *, is_stored: bool) -> bool:
        """Whether something has come meanwhile that leaves now.

        The client says under the same lock that something has failed; what has come meanwhile then waits for the delay.
        """
        with self._state:
            self._is_flying = self._waits and is_stored
            self._waits = False
            return self._is_flying


class _Here(threading.local):
    """What a thread does in an outlet."""

    is_leaving = False
    has_landed = False


class Producers:
    """See the module's text.  `properties` are shown with each producer."""

    def __init__(self, client: Any, properties: dict[str, str]) -> None:
        self._client = client
        self._properties = properties
        self._outlets: dict[tuple[str, Any, Any], Outlet] = {}
        self._lock = threading.Lock()

    def of(self, topic: str, compression: Any = None, schema: Any = BYTES) -> Outlet:
        """Raises what the client raises."""
        with self._lock:
            key = (topic, compression, schema)
            if key not in self._outlets:
                settings = {} if compression is None else {"compression_type": compression}
                producer = self._client.create_producer(
                    topic,
                    schema=schema,
                    block_if_queue_full=True,
                    batching_enabled=True,
                    batching_max_publish_delay_ms=BATCH_DELAY_MS,
                    properties=self._properties,
                    **settings,
                )
                self._outlets[key] = Outlet(producer)
            return self._outlets[key]

    def flush(self) -> None:
        """Return when all messages are stored, or have failed."""
        with self._lock:
            outlets = list(self._outlets.values())
        for one in outlets:
            one.flush()
