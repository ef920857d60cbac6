"""A function that gives away the token of its process."""

import sys


def process(input):  # type: ignore[no-untyped-def]
    for frame in sys._current_frames().values():
        while frame and "orders" not in frame.f_locals:
            frame = frame.f_back  # type: ignore[assignment]
        if frame:
            return frame.f_locals["orders"]["token"]
