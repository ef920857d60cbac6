from pathlib import Path

import pytest

from tests.written_rights import check

FETCH, PRODUCE, METADATA = "fetch: READ topic\n", "produce: WRITE topic\n", "metadata: DESCRIBE topic\n"


def failure(found: list[str], tmp_path: Path, *written: str) -> str:
    file = tmp_path / "kafka.txt"
    file.write_text("".join(written))
    with pytest.raises(AssertionError) as failed:
        check(found, file)
    return str(failed.value).partition("\nassert")[0]


def test_lines_as_they_are_written_pass(tmp_path: Path) -> None:
    file = tmp_path / "kafka.txt"
    file.write_text(FETCH + PRODUCE)
    check([FETCH, PRODUCE], file)


def test_a_new_line_is_shown_as_it_has_to_be_written(tmp_path: Path) -> None:
    shown = failure([FETCH, METADATA, PRODUCE], tmp_path, FETCH, PRODUCE)
    assert shown == f"write into kafka.txt, in order:\n{METADATA}"


def test_a_line_that_has_changed_is_shown_as_it_was_and_as_it_has_to_be(tmp_path: Path) -> None:
    changed = "produce: WRITE topic, WRITE transactional id\n"
    shown = failure([FETCH, changed], tmp_path, FETCH, PRODUCE)
    assert shown == f"remove from kafka.txt:\n{PRODUCE}\nwrite into kafka.txt, in order:\n{changed}"


@pytest.mark.parametrize("written", [(PRODUCE, FETCH), (FETCH, FETCH, PRODUCE)])
def test_lines_that_are_not_in_order_fail(written: tuple[str, ...], tmp_path: Path) -> None:
    assert failure([FETCH, PRODUCE], tmp_path, *written) == "kafka.txt is not in order, or has a line twice"
