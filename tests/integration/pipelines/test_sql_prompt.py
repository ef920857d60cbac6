"""The prompt of `magnetar sql` at a real terminal, without Spark."""

import os
import pty
import select
import subprocess
import sys

import pytest

# The hook is called when the prompt is on the screen and `input` does not wait yet.  It raises the signal once, and
# runs no bytecode: with bytecode, Python would act on the signal there.  A shell that runs the tests in the background
# has them ignore the signal, and a program inherits that.
INTERRUPTED_BEFORE_IT_WAITS = """
import ctypes, functools, readline, signal
from magnetar.pipelines.sql import prompt

signal.signal(signal.SIGINT, signal.default_int_handler)
interrupts = map(ctypes.CDLL(None)["raise"], [signal.SIGINT])
readline.set_pre_input_hook(functools.partial(next, interrupts, None))
prompt.converse(print, print, list)
"""


@pytest.mark.slow
def test_ctrl_c_is_noticed_even_before_the_prompt_waits(tmp_path: object) -> None:
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_BEFORE_IT_WAITS],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"},
    )
    os.close(theirs)
    try:
        shown = b""
        while shown.count(b"magnetar> ") < 2:
            assert select.select([ours], [], [], 60.0)[0], (
                f"the prompt did not come again; what came is {shown!r}"
            )
            shown += os.read(ours, 4_096)
        os.write(ours, b"exit\n")
        assert program.wait(60.0) == 0
    finally:
        program.kill()
        program.wait()
        os.close(ours)
