"""Forms with files, byte for byte."""

import pytest

from magnetar.admin.answers import BadBody
from magnetar.admin.forms import Part, parts_of

FORM = (
    b'--b\r\nContent-Disposition: form-data; name="a"\r\nContent-Type: application/json\r\n\r\n{}\r\n'
    b'--b\r\ncontent-disposition: form-data; name="data"; filename="f.zip"\r\n\r\n\x00\r\n\xff--b\n\r\n--b--\r\n'
)


def test_parts_are_what_was_sent() -> None:
    assert parts_of(FORM, "b") == {"a": Part(b"{}"), "data": Part(b"\x00\r\n\xff--b\n", "f.zip")}


@pytest.mark.parametrize("end", range(len(FORM) - 4))
def test_form_that_is_cut_off_is_refused(end: int) -> None:
    with pytest.raises(BadBody):
        parts_of(FORM[:end], "b")


@pytest.mark.parametrize(
    "form",
    [
        b"--b\r\n\r\n\r\nx\r\n--b--",
        b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 2 + b"--b--",
        b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 30 + b"--b--",
    ],
)
def test_part_without_a_name_of_its_own_is_refused(form: bytes) -> None:
    with pytest.raises(BadBody):
        parts_of(form, "b")
