"""What a piece of work consists of, counted: a time says more of what else the machine does."""

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

Steps = Counter[tuple[str, int | str]]


def steps_of(log_in: Callable[[], object]) -> Steps:
    """How often each instruction of Python ran, and each function of C."""
    steps: Steps = Counter()

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps[frame.f_code.co_name, frame.f_lasti] += 1
        return traced

    def profiled(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            steps[frame.f_code.co_name, function.__name__] += 1

    before = sys.gettrace(), sys.getprofile()
    gc.disable()  # a collection has steps of its own
    sys.settrace(traced)
    sys.setprofile(profiled)
    try:
        log_in()
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
        gc.enable()
    return steps
