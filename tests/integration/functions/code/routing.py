"""Sends each message to the topic that it names, by a serde of its own."""

from pulsar import Function
from pulsar.functions.serde import SerDe


class Pair(SerDe):  # type: ignore[misc]
    def serialize(self, input):  # type: ignore[no-untyped-def]
        return f"{input[0]}:{input[1]}".encode()

    def deserialize(self, input_bytes):  # type: ignore[no-untyped-def]
        return tuple(input_bytes.decode().split(":", 1))


class Routing(Function):  # type: ignore[misc]
    def process(self, input, context):  # type: ignore[no-untyped-def]
        kind, text = input
        if kind not in ("fruit", "vegetable"):
            raise ValueError(f"nobody eats {text}")
        properties = {"from": context.get_current_message_topic_name()}
        context.publish(kind, text, properties=properties)
