"""Forms with files, byte for byte."""

import asyncio
from collections.abc import Mapping

import httpx
import pytest
from starlette.datastructures import Headers

from magnetar.admin.answers import BODY_BYTES_MAX, BadBody
from magnetar.admin.forms import PARTS_MAX, PIECE_BYTES, Part, parts_of
from tests.unit.admin.test_login import Noting, with_http

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


@pytest.mark.parametrize("named", ["UTF-8", '"utf-8"', "us-ascii"])
def test_texts_are_utf_8(named: str) -> None:
    assert parse(FORM, f"multipart/form-data; charset={named}; boundary=b") == PARTS


@pytest.mark.parametrize(
    "named",
    [
        "=punycode",  # takes time by the square of a text's length
        "=idna",
        "=unicode_escape",  # reads halves of characters
        "=undefined",  # raises what nobody expects
        "=utf-7",
        "=nothing",
    ],
)
def test_a_client_does_not_choose_what_reads_its_texts(named: str) -> None:
    form = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\\ud800\r\n--b--'
    with pytest.raises(BadBody, match="UTF-8"):
        parse(form, f"multipart/form-data; charset{named}; boundary=b")


def test_a_large_form_leaves_turns_to_others() -> None:
    async def scenario() -> int:
        turns = 0
        reading = asyncio.ensure_future(
            parts_of(Headers({"content-type": "multipart/form-data; boundary=b"}), form)
        )
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
        assert (await reading)["a"].content == content
        return turns

    content = b"\r\n--b." * 50_000
    form = b'--b\r\nContent-Disposition: form-data; name="a"; filename="f"\r\n\r\n' + content + b"\r\n--b--"
    assert asyncio.run(scenario()) > len(form) // PIECE_BYTES


@pytest.mark.parametrize(
    ("path", "name"), [("", "functionConfig"), ("/state/k", "state")], ids=["configuration", "state"]
)
def test_json_in_a_form_is_no_larger_than_in_a_body_of_its_own(path: str, name: str) -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        form = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n--b--'
        for size, words in ((BODY_BYTES_MAX + 1, "larger than"), (BODY_BYTES_MAX, "not JSON")):
            answer = await http.post(
                f"/admin/v3/functions/public/default/f{path}",
                content=form % (name.encode(), b"[" * size),
                headers={"content-type": "multipart/form-data; boundary=b"},
            )
            assert answer.status_code == httpx.codes.BAD_REQUEST
            assert words in answer.json()["reason"]

    with_http(scenario, asks=False)


@pytest.mark.parametrize(
    ("method", "path"), [("POST", ""), ("PUT", ""), ("POST", "/trigger"), ("POST", "/state/k")]
)
def test_no_form_is_read_before_the_right_is_asked(method: str, path: str) -> None:
    async def scenario(http: httpx.AsyncClient, rules: Noting) -> None:
        for may, status in ((True, httpx.codes.BAD_REQUEST), (False, httpx.codes.UNAUTHORIZED)):
            rules.may = may
            answer = await http.request(
                method,
                f"/admin/v3/functions/public/default/f{path}",
                content=b"no form",
                headers={"content-type": "multipart/form-data; boundary=b"},
            )
            assert answer.status_code == status

    with_http(scenario, asks=False)
