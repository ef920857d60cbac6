import io
import json
import logging

import pytest

from magnetar.base.logging import FIELD_CHARS_MAX, configure_logging, get_logger


def logged(line_format: str, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure_logging(level, line_format, stream)
    return stream


def test_a_text_line_has_time_level_logger_message_and_fields() -> None:
    stream = logged("text")
    get_logger("magnetar.storage").info(
        "segment rolled", ledger=7, path="/a b", empty="", quote='"\\', plain="x"
    )
    time, rest = stream.getvalue().split(" ", 1)
    assert len(time) == len("2026-01-31T12:00:00.123Z")
    assert time.endswith("Z")
    assert rest == (
        'INFO    magnetar.storage  segment rolled  ledger=7 path="/a b" empty="" quote="\\"\\\\" plain=x\n'
    )


def test_a_json_line_is_one_object() -> None:
    stream = logged("json")
    get_logger("magnetar.storage").warning(
        "segment rolled", ledger=7, ratio=0.5, ok=True, error=OSError("x"), level=1
    )
    line = json.loads(stream.getvalue())
    del line["time"]
    assert line == {
        "level": "warning",
        "logger": "magnetar.storage",
        "message": "segment rolled",
        "ledger": 7,
        "ratio": 0.5,
        "ok": True,
        "error": "x",
        "field_level": 1,
    }


@pytest.mark.parametrize("line_format", ["text", "json"])
def test_what_a_client_sent_cannot_forge_a_line(line_format: str) -> None:
    stream = logged(line_format)
    hostile = "x\n2026-01-01 ERROR forged\r\x1b[31m\u2028\x85"
    get_logger("magnetar").info(hostile, client=hostile)
    logging.getLogger("magnetar").info("from %s", hostile)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("line_format", ["text", "json"])
def test_secrets_are_not_written_and_long_fields_are_cut(line_format: str) -> None:
    stream = logged(line_format)
    get_logger("magnetar").info("login", sasl_password="hunter2", Token="hunter2", big="y" * 10_000)
    assert "hunter2" not in stream.getvalue()
    assert stream.getvalue().count("(hidden)") == 2
    assert stream.getvalue().count("y") == FIELD_CHARS_MAX


def test_only_lines_of_the_level_and_above_are_written() -> None:
    stream = logged("text", "warning")
    log = get_logger("magnetar.x")
    log.debug("no")
    log.info("no")
    log.warning("one")
    log.error("two")
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["WARNING", "ERROR"]


def test_libraries_are_heard_from_warning_on_even_at_debug() -> None:
    stream = logged("text", "debug")
    logging.getLogger("asyncio").info("no")
    logging.getLogger("asyncio").warning("yes")
    get_logger("magnetar.x").debug("yes", n=1)
    assert len(stream.getvalue().splitlines()) == 2


@pytest.mark.parametrize("line_format", ["text", "json"])
def test_an_exception_brings_its_traceback(line_format: str) -> None:
    stream = logged(line_format)
    try:
        raise RuntimeError("our bug")
    except RuntimeError:
        get_logger("magnetar").exception("failed", connection=3)
    assert "RuntimeError: our bug" in stream.getvalue()
    assert "connection" in stream.getvalue()
    assert "test_logging.py" in stream.getvalue()


def test_configuring_again_replaces_what_was_there() -> None:
    first, second = logged("text"), logged("text")
    get_logger("magnetar").info("once")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1
