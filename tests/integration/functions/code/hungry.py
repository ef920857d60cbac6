"""Ends its own process, or needs more memory, log or disk than it has."""

import os
import sys

from pulsar import Function


class Hungry(Function):  # type: ignore[misc]
    def process(self, input, context):  # type: ignore[no-untyped-def]
        if input == "end" and context.incr_counter("ends", 1) == 1:
            os._exit(3)
        if input == "eat":
            return str(len(bytearray(2 << 30)))
        if input == "shout":
            sys.stderr.write("shouting " * (2 << 20))
            sys.stderr.flush()
        if input == "hoard":
            with open("hoard", "wb") as file:
                file.truncate(300 << 20)
        return input
