"""What a function logs, as messages of its log topic."""

import logging
from contextlib import suppress

import pulsar

from magnetar.functions.producers import Producers


class LogTopic(logging.Handler):
    """See the module's text.  A record that cannot be published is in the instance's log all the same."""

    def __init__(self, producers: Producers, topic: str, function: str) -> None:
        super().__init__()
        self._producers = producers
        self._topic = topic
        self._function = function
        # Now: a callback of the client's that logs runs in the client's thread, which cannot wait for a new producer.
        with suppress(pulsar.PulsarException):
            producers.of(topic)

    def emit(self, record: logging.LogRecord) -> None:
        """Publish a record."""
        try:
            self._producers.of(self._topic).send_async(
                self.format(record).encode("utf-8", "replace"),
                None,
                properties={"loglevel": record.levelname, "function": self._function},
            )
        except Exception:  # noqa: BLE001  as logging does it
            self.handleError(record)
