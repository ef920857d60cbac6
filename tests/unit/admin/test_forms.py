"""Forms with files, byte for byte."""

import asyncio
from collections.abc import Mapping

import pytest
from starlette.datastructures import Headers

from magnetar.admin.answers import BadBody
from magnetar.admin.forms import PARTS_MAX, Part, parts_of

FORM = (
    b'--b\r\nContent-Disposition: form-data; name="a"\r\nContent-Type: application/json\r\n\r\n{}\r\n'
    b'--b\r\ncontent-disposition: form-data; name="data"; filename="f.zip"\r\n\r\n\x00\r\n\xff--b\n\r\n--b--\r\n'
)
PARTS = {"a": Part(b"{}"), "data": Part(b"\x00\r\n\xff--b\n", "f.zip")}


def parse(form: bytes, kind: str = "multipart/form-data; boundary=b") -> Mapping[str, Part]:
    return asyncio.run(parts_of(Headers({"content-type": kind}), form))


def test_parts_are_what_was_sent() -> None:
    assert parse(FORM) == PARTS


@pytest.mark.parametrize("end", range(len(FORM) - 2))
def test_a_form_that_is_cut_off_is_refused(end: int) -> None:
    with pytest.raises(BadBody, match="cut off"):
        parse(FORM[:end])


@pytest.mark.parametrize(
    "form",
    [
        b"--b\r\n\r\n\r\nx\r\n--b--",
        b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 2 + b"--b--",
        b"".join(
            b'--b\r\nContent-Disposition: form-data; name="%d"\r\n\r\n1\r\n' % number
            for number in range(PARTS_MAX + 1)
        )
        + b"--b--",
    ],
)
def test_part_without_a_name_of_its_own_is_refused(form: bytes) -> None:
    with pytest.raises(BadBody):
        parse(form)


def test_a_form_without_a_boundary_is_refused() -> None:
    with pytest.raises(BadBody, match="no boundary"):
        parse(FORM, "multipart/form-data")
