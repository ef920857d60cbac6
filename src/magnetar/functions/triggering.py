"""Triggers: for a client that triggers the function, send a message to an input and find what the function makes of it.

The output may be another instance's, so it is looked for in the output topic, by the input's id in its properties.
"""

import base64
import threading
from collections.abc import Mapping
from typing import Any, Final

import pulsar

from magnetar.base.clock import Clock
from magnetar.functions.channel import Channel
from magnetar.functions.processing import MESSAGE_ID, TOPIC
from magnetar.functions.schemas import Encoded, input_of

WAIT_S: Final = 10.0
OUTPUT_BYTES_MAX: Final = 200 << 10  # as two digits for each byte it fits a line to the server
_PARTITION: Final = "-partition-"


class Triggering:
    """See the module's text."""

    def __init__(
        self,
        channel: Channel,
        client: Any,
        config: Mapping[str, Any],
        properties: dict[str, str],
        clock: Clock,
    ) -> None:
        self._channel = channel
        self._client = client
        self._config = config
        self._output = config.get("output")
        self._properties = properties
        self._clock = clock

    def take(self, order: Mapping[str, Any]) -> None:
        """Answer an order, which has an `id`, a `topic` and `data`; the server bounds how many there are at once."""
        threading.Thread(target=self._run, args=(order,), name="trigger", daemon=True).start()

    def _run(self, order: Mapping[str, Any]) -> None:
        answer: dict[str, Any] = {"id": order["id"]}
        try:
            content = self._output_of(order["topic"], bytes.fromhex(order["data"]))
            if content is not None and len(content) > OUTPUT_BYTES_MAX:
                answer["error"] = f"the output has more than {OUTPUT_BYTES_MAX} bytes; it is in its topic"
            else:
                answer["data"] = None if content is None else content.hex()
        except pulsar.Timeout:
            return  # the server waits no longer, either
        except pulsar.PulsarException as error:
            answer["error"] = f"the function cannot be triggered: {error}"
        self._channel.say("triggered", answer)

    def _output_of(self, topic: str, content: bytes) -> bytes | None:
        """Raises what the client raises; Timeout if there is no output in time."""
        reader = None if self._output is None else self._client.create_reader(self._output, _LATEST)
        try:
            schema = Encoded(input_of(self._config, self._config["inputSpecs"][topic]).schema)
            producer = self._client.create_producer(topic, schema=schema, properties=self._properties)
            try:
                sent = producer.send(content)
            finally:
                producer.close()
            if reader is None:
                return None
            ends_s = self._clock.monotonic() + WAIT_S
            while True:
                left_ms = int(1000 * (ends_s - self._clock.monotonic()))
                message = reader.read_next(max(left_ms, 1))
                if _is_made_of(message, topic, sent):
                    return bytes(message.data())
        finally:
            if reader is not None:
                reader.close()


_LATEST: Final = pulsar.MessageId.latest


def _is_made_of(message: Any, topic: str, sent: Any) -> bool:
    properties = message.properties()
    if properties.get(TOPIC, "").partition(_PARTITION)[0] != topic.partition(_PARTITION)[0]:
        return False
    try:
        given = pulsar.MessageId.deserialize(base64.b64decode(properties[MESSAGE_ID]))
    except (KeyError, ValueError):
        return False  # another client's, which may write anything to the topic
    return _place(given) == _place(sent)


def _place(message_id: Any) -> tuple[int, int, int]:
    return message_id.ledger_id(), message_id.entry_id(), message_id.partition()
