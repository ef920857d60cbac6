"""Counts words in its state."""

from pulsar import Function


class WordCount(Function):  # type: ignore[misc]
    def process(self, input, context):  # type: ignore[no-untyped-def]
        for word in str(input).split():
            context.incr_counter(word, 1)
        context.put_state("last", str(input))
        context.record_metric("words", len(str(input).split()))
