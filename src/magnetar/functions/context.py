"""What a function gets besides its message: Pulsar's `Context`."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pulsar
from pulsar.functions.context import Context

from magnetar.functions.channel import Channel
from magnetar.functions.code import serde_of
from magnetar.functions.counts import Counts
from magnetar.functions.producers import Producers

log = logging.getLogger(__name__)


class FunctionContext(Context):  # type: ignore[misc]
    """The context of one instance; `message` is the one that the function processes."""

    def __init__(
        self,
        orders: Mapping[str, Any],
        channel: Channel,
        counts: Counts,
        producers: Producers,
        logger: logging.Logger,
        acknowledge: Callable[[Any, str], None],
    ) -> None:
        self._orders = orders
        self._config: Mapping[str, Any] = orders["config"]
        self._channel = channel
        self._counts = counts
        self._producers = producers
        self._logger = logger
        self._acknowledge = acknowledge
        self._serdes: dict[str, Any] = {}
        self.message: Any = None

    # --- the message -------------------------------------------------------------------------------------------------

    def get_message_id(self) -> Any:
        return self.message.message_id()

    def get_message_key(self) -> str:
        return str(self.message.partition_key())

    def get_message_eventtime(self) -> int:
        return int(self.message.event_timestamp())

    def get_message_properties(self) -> dict[str, str]:
        return dict(self.message.properties())

    def get_current_message_topic_name(self) -> str:
        return str(self.message.topic_name())

    def get_partition_key(self) -> str:
        return str(self.message.partition_key())

    def get_ordering_key(self) -> str:
        return str(self.message.ordering_key())

    # --- the function ------------------------------------------------------------------------------------------------

    def get_function_tenant(self) -> str:
        return str(self._config["tenant"])

    def get_function_namespace(self) -> str:
        return str(self._config["namespace"])

    def get_function_name(self) -> str:
        return str(self._config["name"])

    def get_function_id(self) -> str:
        return str(self._orders["id"])

    def get_instance_id(self) -> int:
        return int(self._orders["instance"])

    def get_function_version(self) -> str:
        return str(self._orders["version"])

    def get_logger(self) -> logging.Logger:
        return self._logger

    def get_user_config_value(self, key: str) -> Any:
        return self._config["userConfig"].get(key)

    def get_user_config_map(self) -> dict[str, Any]:
        return dict(self._config["userConfig"])

    def get_secret(self, secret_name: str) -> str | None:
        found: str | None = self._orders["secrets"].get(secret_name)
        return found

    def get_input_topics(self) -> list[str]:
        return list(self._config["inputSpecs"])

    def get_output_topic(self) -> str | None:
        return self._config.get("output")

    def get_output_serde_class_name(self) -> str | None:
        return self._config.get("outputSerdeClassName")

    def record_metric(self, metric_name: str, metric_value: float) -> None:
        self._counts.metric(str(metric_name)[:100], float(metric_value))

    # --- what it does ------------------------------------------------------------------------------------------------

    def publish(
        self,
        topic_name: str,
        message: Any,
        serde_class_name: str = "serde.IdentitySerDe",
        properties: Mapping[str, str] | None = None,
        compression_type: Any = None,
        callback: Callable[..., None] | None = None,
        message_conf: Mapping[str, Any] | None = None,
    ) -> None:
        if serde_class_name not in self._serdes:
            self._serdes[serde_class_name] = serde_of(serde_class_name)
        content = self._serdes[serde_class_name].serialize(message)
        settings = dict(message_conf or {})
        if properties:
            settings["properties"] = dict(properties)

        def sent(result: Any, message_id: Any) -> None:
            if result != pulsar.Result.Ok:
                self._counts.system_exception(f"a message to {topic_name} was not published: {result}")
            if callback is None:
                return
            try:
                callback(result, message_id)
            except Exception as error:  # a user's code: the client would end the process
                log.exception("a callback of the function raised")
                self._counts.user_exception(error)

        self._producers.of(topic_name, compression_type).send_async(content, sent, **settings)

    def ack(self, msgid: Any, topic: str) -> None:
        self._acknowledge(msgid, topic)

    # --- state -------------------------------------------------------------------------------------------------------

    def incr_counter(self, key: str, amount: int) -> int:
        return int(self._channel.ask("count", key, amount))

    def get_counter(self, key: str) -> int:
        return int(self._channel.ask("counter", key))

    def del_counter(self, key: str) -> None:
        self._channel.ask("drop", key)

    def put_state(self, key: str, value: Any) -> None:
        content = bytes(value) if isinstance(value, bytes | bytearray) else str(value).encode()
        self._channel.ask("put", key, content.hex())

    def get_state(self, key: str) -> str | bytes | None:
        found = self._channel.ask("get", key)
        if found is None:
            return None
        content = bytes.fromhex(found)
        try:
            return content.decode()
        except UnicodeDecodeError:
            return content
