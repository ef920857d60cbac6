"""Lines for the shell that settings name: what they print is a key or a token."""

import subprocess

from magnetar.base.errors import ConfigError


def printed_by(command: str, what: str, *, seconds_max: float, may_ask: bool = False) -> bytes:
    """What a command prints; with `may_ask` it may ask a person for something at the terminal.  Blocks.

    Raises:
        ConfigError: it fails, or takes longer than `seconds_max`; `what` names it.  It and its output are not repeated.
    """
    try:
        done = subprocess.run(  # noqa: S602 - a line for the shell, as its user wrote it
            command,
            shell=True,
            stdin=None if may_ask else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{what} has not ended after {seconds_max:g} s") from None
    if done.returncode:
        raise ConfigError(f"{what} failed with exit code {done.returncode}")
    return done.stdout
