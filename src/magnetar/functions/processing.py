"""Messages in, calls of the function, outputs out.

One thread calls the function, so an instance keeps the order of what it reads.  A message is acknowledged

* ATLEAST_ONCE: when its output is stored, or at once if there is none.  If the function raises, or the output is not
  stored, the message is delivered again, or goes to the dead-letter topic after `maxMessageRetries`
* ATMOST_ONCE: before the call
* EFFECTIVELY_ONCE: when its output is stored, which is before the instance looks at the next message.  If the function
  raises, or the output is not stored, the instance tries the message again, and all others wait (`effectively_once.py`)
* MANUAL, or without `autoAck`: by the function
"""

import base64
import logging
import queue
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import pulsar

from magnetar.base.clock import Clock
from magnetar.functions.code import Callee
from magnetar.functions.context import FunctionContext
from magnetar.functions.counts import Counts
from magnetar.functions.effectively_once import OutputsOnce, Unnumbered
from magnetar.functions.producers import Producers
from magnetar.functions.schemas import Output, input_of, output_of

log = logging.getLogger(__name__)

AGAIN_MS: Final = 1000
QUEUED_MAX: Final = 1000
PATTERN_LOOK_S: Final = 5
_WAIT_S: Final = 0.5
TOPIC: Final = "__pfn_input_topic__"
MESSAGE_ID: Final = "__pfn_input_msg_id__"


class _Taken(NamedTuple):
    """A message, and what it came by."""

    consumer: Any
    read: Callable[[Any], Any]
    message: Any


class _Raised(Exception):
    """The function, or one of its serdes or schemas, has raised; that is counted."""


class Processing:
    """See the module's text.  `once` sends the outputs of EFFECTIVELY_ONCE; None with any other guarantee."""

    def __init__(
        self,
        config: Mapping[str, Any],
        client: Any,
        counts: Counts,
        producers: Producers,
        once: OutputsOnce | None,
        clock: Clock,
    ) -> None:
        self._once = once
        self._clock = clock
        self._config = config
        self._client = client
        self._counts = counts
        self._producers = producers
        guarantee = config["processingGuarantees"]
        self._acks_before = guarantee == "ATMOST_ONCE" and config["autoAck"]
        self._is_once = guarantee == "EFFECTIVELY_ONCE"
        self._acks_after = self._is_once or (guarantee == "ATLEAST_ONCE" and config["autoAck"])
        self._taken: queue.Queue[_Taken] = queue.Queue(QUEUED_MAX)
        self._by_topic: dict[str, Any] = {}
        self._consumers: list[tuple[Any, Callable[[Any], Any]]] = []
        self._stop = threading.Event()
        self._call_began_s: float | None = None  # of the monotonic clock, while the function is called

    def subscribe(self, subscription: str, properties: dict[str, str]) -> None:
        """Begin to read the inputs.  Raises what the client and `input_of` raise."""
        config = self._config
        kind = pulsar.ConsumerType.Shared
        if config["retainOrdering"] or self._is_once:
            kind = pulsar.ConsumerType.Failover
        elif config["retainKeyOrdering"]:
            kind = pulsar.ConsumerType.KeyShared
        settings: dict[str, Any] = {
            "consumer_type": kind,
            "initial_position": getattr(pulsar.InitialPosition, config["subscriptionPosition"]),
            "negative_ack_redelivery_delay_ms": AGAIN_MS,
            "pattern_auto_discovery_period": PATTERN_LOOK_S,
            "properties": properties,
        }
        if config.get("maxMessageRetries") is not None:
            settings["dead_letter_policy"] = pulsar.ConsumerDeadLetterPolicy(
                config["maxMessageRetries"], config.get("deadLetterTopic")
            )
        inputs = config["inputSpecs"]
        for name, spec in inputs.items():
            made = input_of(config, spec)
            # The function's thread asks a single consumer itself: between two threads each message costs both a turn.
            listener = partial(self._take, made.read) if len(inputs) > 1 else None
            consumer = self._client.subscribe(
                re.compile(name) if spec["isRegexPattern"] else name,
                subscription,
                schema=made.schema,
                message_listener=listener,
                receiver_queue_size=spec.get("receiverQueueSize", QUEUED_MAX),
                **settings,
            )
            self._consumers.append((consumer, made.read))

    def run(self, callee: Callee, context: FunctionContext) -> None:
        """Process messages until `stop`."""
        topic = self._config.get("output")
        output = output_of(self._config) if topic else None
        while not self._stop.is_set():
            taken = self._next()
            if taken is None:
                continue
            message = taken.message
            self._by_topic[message.topic_name()] = taken.consumer
            self._counts.received()
            if self._is_once:
                self._process_once(taken, callee, context, output)
            else:
                self._process(taken, callee, context, topic, output)

    def stop(self) -> None:
        """End with the message that is being processed."""
        self._stop.set()

    def call_takes_s(self) -> float:
        """How long the function has been at its present message, in seconds; 0 while it has none.  For any thread."""
        began_s = self._call_began_s
        return 0.0 if began_s is None else self._clock.monotonic() - began_s

    def acknowledge(self, message_id: Any, topic: str) -> None:
        """For the function, which acknowledges by itself."""
        if topic not in self._by_topic:
            raise ValueError(f"Invalid topicname {topic}")
        self._by_topic[topic].acknowledge(message_id)

    # --- inside

    def _next(self) -> _Taken | None:
        """The next message; None if none comes within `_WAIT_S`."""
        try:
            if len(self._consumers) > 1:
                return self._taken.get(timeout=_WAIT_S)
            ((consumer, read),) = self._consumers
            return _Taken(consumer, read, consumer.receive(int(_WAIT_S * 1000)))
        except (queue.Empty, pulsar.Timeout):
            return None

    def _take(self, read: Callable[[Any], Any], consumer: Any, message: Any) -> None:
        self._taken.put(_Taken(consumer, read, message))

    def _process(
        self,
        taken: _Taken,
        callee: Callee,
        context: FunctionContext,
        topic: str | None,
        output: Output | None,
    ) -> None:
        message = taken.message
        if self._acks_before:
            taken.consumer.acknowledge(message)
        try:
            content = self._called(taken, callee, context, output)
        except _Raised:
            self._again(taken)
            return
        if content is None or topic is None or output is None:
            self._is_done(taken)
            return
        try:
            self._producers.of(topic, schema=output.schema).send_async(
                content, partial(self._sent, taken), **self._forwarded(message)
            )
        except pulsar.PulsarException as error:
            self._counts.system_exception(f"an output to {topic} was not published: {error}")
            self._again(taken)

    def _process_once(
        self, taken: _Taken, callee: Callee, context: FunctionContext, output: Output | None
    ) -> None:
        """Try until it is done, or until `stop`; then a later process begins with this message."""
        while not self._stop.is_set():
            try:
                content = self._called(taken, callee, context, output)
                if content is not None and self._once is not None:
                    self._once.send(taken.message, content, self._forwarded(taken.message))
                self._is_done(taken)
                return
            except _Raised:
                pass
            except Unnumbered as error:
                self._counts.system_exception(str(error))
            except pulsar.PulsarException as error:
                self._counts.system_exception(f"an output was not published: {error}")
            self._stop.wait(AGAIN_MS / 1000)

    def _called(
        self, taken: _Taken, callee: Callee, context: FunctionContext, output: Output | None
    ) -> bytes | None:
        """What the function makes of a message, as bytes; None if it is nothing, or goes nowhere.  Raises _Raised."""
        began_s = self._call_began_s = self._clock.monotonic()
        context.message = taken.message
        try:
            given = taken.read(taken.message)
            result = callee.call(given, context) if callee.takes_context else callee.call(given)
            content = None if result is None or output is None else output.write(result)
        except Exception as error:  # a user's code
            log.exception("the function raised")
            self._counts.user_exception(error)
            raise _Raised from error
        finally:
            self._call_began_s = None
        self._counts.called(self._clock.monotonic() - began_s)
        return content

    def _forwarded(self, message: Any) -> dict[str, Any]:
        properties = dict(message.properties()) if self._config["forwardSourceMessageProperty"] else {}
        properties[TOPIC] = message.topic_name()
        properties[MESSAGE_ID] = base64.b64encode(message.message_id().serialize()).decode()
        key = message.partition_key()
        return {"properties": properties, **({"partition_key": key} if key else {})}

    def _sent(self, taken: _Taken, result: Any, message_id: Any) -> None:
        if result == pulsar.Result.Ok:
            self._is_done(taken)
            return
        self._counts.system_exception(f"an output was not published: {result}")
        self._again(taken)

    def _is_done(self, taken: _Taken) -> None:
        if self._acks_after:
            taken.consumer.acknowledge(taken.message)
        self._counts.processed()

    def _again(self, taken: _Taken) -> None:
        if self._acks_after:
            taken.consumer.negative_acknowledge(taken.message)
