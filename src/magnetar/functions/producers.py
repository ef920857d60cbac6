"""The producers of an instance, by topic: made at first use, and kept."""

import threading
from typing import Any, Final

from magnetar.functions.schemas import BYTES

BATCH_DELAY_MS: Final = 1


class Producers:
    """See the module's text.  `properties` are shown with each producer."""

    def __init__(self, client: Any, properties: dict[str, str]) -> None:
        self._client = client
        self._properties = properties
        self._producers: dict[tuple[str, Any, Any], Any] = {}
        self._lock = threading.Lock()

    def of(self, topic: str, compression: Any = None, schema: Any = BYTES) -> Any:
        """Raises what the client raises."""
        with self._lock:
            key = (topic, compression, schema)
            if key not in self._producers:
                settings = {} if compression is None else {"compression_type": compression}
                self._producers[key] = self._client.create_producer(
                    topic,
                    schema=schema,
                    block_if_queue_full=True,
                    batching_enabled=True,
                    batching_max_publish_delay_ms=BATCH_DELAY_MS,
                    properties=self._properties,
                    **settings,
                )
            return self._producers[key]

    def flush(self) -> None:
        """Return when all messages are sent, or have failed."""
        with self._lock:
            producers = list(self._producers.values())
        for one in producers:
            one.flush()
