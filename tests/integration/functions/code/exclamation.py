"""A class, which adds to its input what its configuration says, and logs what it got."""

from pulsar import Function


class Exclamation(Function):  # type: ignore[misc]
    def process(self, input, context):  # type: ignore[no-untyped-def]
        context.get_logger().info("got %s", input)
        return f"{input}{context.get_user_config_value('mark') or '!'}"
