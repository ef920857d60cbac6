"""Ends its own process, or needs more memory than it has."""

import os


def process(input):  # type: ignore[no-untyped-def]
    if input == "end" and not os.path.exists("../ended"):
        open("../ended", "w").close()
        os._exit(3)
    if input == "eat":
        return str(len(bytearray(2 << 30)))
    return input
