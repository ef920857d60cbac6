"""Sends each message aside, with a callback that logs and raises."""

from functools import partial

from pulsar import Function


class CallsBack(Function):  # type: ignore[misc]
    def process(self, input, context):  # type: ignore[no-untyped-def]
        context.publish("called-aside", input, callback=partial(self.stored, context.get_logger(), input))
        return input

    def stored(self, logger, what, result, message_id):  # type: ignore[no-untyped-def]
        logger.info("stored %s", what)
        raise ValueError(what)
