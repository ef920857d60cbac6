"""Functions that change records before they are copied."""

from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import ConfigError
from magnetar.links.errors import LinkError
from magnetar.links.kafka.mask import mask_named, masked
from magnetar.links.kafka.record import Record

SECRET = b"4929 1234"
RECORDS = [Record("t", 1, offset, 7, b"k", SECRET, (("h", SECRET),)) for offset in range(3)]


def test_a_mask_changes_content_and_nothing_else() -> None:
    def mask(record: Record) -> Record | None:
        if record.offset == 1:
            return None
        return record._replace(offset=99, topic="other", timestamp_ms=0, value=b"", headers=())

    assert list(masked(mask, RECORDS)) == [
        Record("t", 1, 0, 7, b"k", b"", ()),
        Record("t", 1, 2, 7, b"k", b"", ()),
    ]


TEXT: Any = "text"
NUMBER: Any = 5


@pytest.mark.parametrize(
    "bad", [b"bytes", ("t", 1), RECORDS[0]._replace(value=TEXT), RECORDS[0]._replace(key=NUMBER)]
)
def test_a_mask_that_returns_no_record_ends_the_copying(bad: Any) -> None:
    with pytest.raises(LinkError, match="offset 0 of t partition 1"):
        list(masked(lambda _: bad, RECORDS))


def test_a_mask_that_fails_ends_the_copying_and_the_reason_has_no_content() -> None:
    def mask(record: Record) -> Record:
        raise ValueError(record.value)

    with pytest.raises(LinkError) as raised:
        list(masked(mask, RECORDS))
    assert "ValueError" in str(raised.value)
    assert SECRET.decode() not in str(raised.value)


def test_a_mask_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mask_of_this_test.py").write_text("def mask(record): return None\nvalue = 5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    assert list(masked(mask_named("mask_of_this_test:mask"), RECORDS)) == []
    for bad in ("mask_of_this_test:value", "mask_of_this_test:none", "no_such_module:mask", "mask", ":mask"):
        with pytest.raises(ConfigError):
            mask_named(bad)
