"""Log lines: a message and fields, as text for people or JSON for programs, on standard error.

    log = get_logger(__name__)
    log.info("segment rolled", ledger=7, bytes=1 << 30)

    2026-01-31T12:00:00.123Z INFO    magnetar.storage  segment rolled  ledger=7 bytes=1073741824

It is the standard library's logging underneath, so levels, filters and libraries that log by themselves work
as everywhere.  Whatever a client sent cannot forge a line: control characters come out escaped.  Fields whose
names say that they are secret are not written.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
FIELD_CHARS_MAX: Final = 1000

_FIELDS: Final = "magnetar_fields"  # the attribute of a LogRecord
_SECRET_WORDS: Final = ("password", "secret", "token", "credential", "authorization", "private_key")
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


class StructuredLogger:
    """A stdlib logger whose calls take fields.  A line below the configured level costs one level check."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, message: str, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.DEBUG):
            self._logger.debug(message, extra={_FIELDS: fields}, stacklevel=2)

    def info(self, message: str, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.INFO):
            self._logger.info(message, extra={_FIELDS: fields}, stacklevel=2)

    def warning(self, message: str, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.WARNING):
            self._logger.warning(message, extra={_FIELDS: fields}, stacklevel=2)

    def error(self, message: str, **fields: object) -> None:
        if self._logger.isEnabledFor(logging.ERROR):
            self._logger.error(message, extra={_FIELDS: fields}, stacklevel=2)

    def exception(self, message: str, **fields: object) -> None:
        """An error with the traceback of the exception that is being handled: for bugs of ours."""
        self._logger.error(message, exc_info=True, extra={_FIELDS: fields}, stacklevel=2)


def get_logger(name: str) -> StructuredLogger:
    return StructuredLogger(logging.getLogger(name))


def configure_logging(level: str, line_format: str, stream: TextIO | None = None) -> None:
    """Send every log line of this process to `stream` (standard error by default), `level` and above.

    `level` is a key of `LEVELS`, `line_format` is `text` or `json`.  Libraries are heard from WARNING on.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if line_format == "json" else TextFormatter())
    logging.basicConfig(level=max(LEVELS[level], logging.WARNING), handlers=[handler], force=True)
    logging.getLogger("magnetar").setLevel(LEVELS[level])


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = f"{_instant(record)} {record.levelname:<7} {printable(record.name)}"
        line = f"{head}  {printable(record.getMessage())}"
        fields = " ".join(f"{name}={_text(value)}" for name, value in _fields(record).items())
        if fields:
            line = f"{line}  {fields}"
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, `message`, the fields, and `exception` when there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            plain = value if isinstance(value, bool | int | float | None) else str(value)[:FIELD_CHARS_MAX]
            line[f"field_{name}" if name in line else name] = plain
        trace = _trace(self, record)
        if trace:
            line["exception"] = trace
        return json.dumps(line)  # in ASCII: no character of a client's can end the line


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, _FIELDS, {})
    return {
        name: "(hidden)" if any(word in name.lower() for word in _SECRET_WORDS) else value
        for name, value in fields.items()
    }


def _instant(record: logging.LogRecord) -> str:
    instant = datetime.fromtimestamp(record.created, UTC)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{instant.microsecond // 1000:03d}Z"


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def printable(text: str) -> str:
    """The text with its control characters escaped: it stays in its line, and says nothing to a terminal."""
    return text.translate(_CONTROL)


def _text(value: object) -> str:
    text = str(value)[:FIELD_CHARS_MAX]
    if text and not any(char in ' "=\\' for char in text):
        return printable(text)
    return printable('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
