"""The server's loggers as BROKER_LOGGER resources (KIP-412): their levels are shown and set, until the next start.

Kafka's level names stand for Python's; TRACE, which Python does not have, is the lowest.  A logger without a level of
its own takes that of the next one above it.
"""

import logging
from collections.abc import Iterable
from typing import Final

from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.policy.model import AlterOperation, ConfigChange

ROOT: Final = "root"
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
_OWN: Final = "magnetar"


def levels() -> dict[str, str]:
    """The effective level of every logger of ours and of the root, by name."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == _OWN]
    return {name: _level_name(_logger(name)) for name in sorted([ROOT, *names])}


def change(changes: Iterable[ConfigChange], validate_only: bool) -> None:
    """Set and unset levels.

    Raises:
        InvalidConfig: there is no such logger or no such level.
        InvalidConfigRequest: the operation makes no sense here.
    """
    known = levels()
    todo: list[tuple[str, int]] = []
    for one in changes:
        if one.name not in known:
            raise InvalidConfig(f"Logger {one.name[:200]} does not exist!")
        match one.operation:
            case AlterOperation.SET:
                if one.value is None:
                    raise InvalidConfigRequest(f"Null value not supported for : {one.name}")
                if one.value not in LEVELS:
                    raise InvalidConfig(
                        f"Cannot set the log level of {one.name} to {one.value[:200]} as it is not a supported log"
                        f" level. Valid log levels are {', '.join(sorted(LEVELS))}"
                    )
                todo.append((one.name, LEVELS[one.value]))
            case AlterOperation.DELETE:
                if one.name == ROOT:
                    raise InvalidConfigRequest("Removing the log level of the root logger is not allowed")
                todo.append((one.name, logging.NOTSET))
            case _:
                raise InvalidConfigRequest(
                    f"{one.operation.name} operation is not allowed for the BROKER_LOGGER resource"
                )
    if not validate_only:
        for name, level in todo:
            _logger(name).setLevel(level)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, value in LEVELS.items() if level >= value), "TRACE")
