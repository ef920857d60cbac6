"""Bodies of type multipart/form-data, which Pulsar's tools send where a file goes with words: parts by name.

A body has at most `FORM_BYTES_MAX` bytes and `PARTS_MAX` parts.  Its texts are UTF-8.  A client that could name another
encoding would choose the decoder, and some decoders take minutes, or return text that no answer can carry.  A body is
read in pieces, with turns of the event loop between them.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, NamedTuple

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from magnetar.admin.answers import BODY_BYTES_MAX, BadBody, body_bytes, read_json

FORM_BYTES_MAX: Final = 10 << 20
PARTS_MAX: Final = 20
PIECE_BYTES: Final = 16 << 10  # read in a millisecond or two, whatever they are
_UTF_8: Final = frozenset((b"utf-8", b"utf8", b"us-ascii"))  # in lower case; ASCII is a part of it


class Part(NamedTuple):
    """A part of a form; `file_name` is empty if it is not a file."""

    content: bytes
    file_name: str = ""


async def form_body(request: Request) -> Mapping[str, Part]:
    """The parts of the body.  Raises BadBody, and Refused as `body_bytes`."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise BadBody("the body must be a form (multipart/form-data)")
    return await parts_of(request.headers, await body_bytes(request, FORM_BYTES_MAX))


async def parts_of(headers: Headers, body: bytes) -> Mapping[str, Part]:
    """The parts of a form by name.  Raises BadBody."""
    options = parse_options_header(headers.get("content-type", ""))[1]
    if options.get(b"charset", b"utf-8").lower() not in _UTF_8:
        raise BadBody("the texts of the form must be UTF-8")
    boundary = options.get(b"boundary")
    if not boundary:
        raise BadBody("the form has no boundary")
    if not body.rstrip(b"\r\n").endswith(b"--" + boundary + b"--"):
        raise BadBody("the form is cut off")
    parser = MultiPartParser(
        headers, _pieces(body), max_files=PARTS_MAX, max_fields=PARTS_MAX, max_part_size=FORM_BYTES_MAX
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise BadBody(f"the form cannot be read: {error.message}") from error
    try:
        parts = {name: await _part(value) for name, value in form.multi_items()}
        if len(parts) < len(form.multi_items()):
            raise BadBody("two parts of the form have one name")
        return parts
    finally:
        await form.close()


async def object_part(request: Request, parts: Mapping[str, Part], name: str) -> Mapping[str, Any]:
    """The JSON object in a part.  Raises BadBody if there is none."""
    if name not in parts:
        raise BadBody(f"the form has no {name}")
    if len(parts[name].content) > BODY_BYTES_MAX:  # as of a body of JSON
        raise BadBody(f"{name} is larger than {BODY_BYTES_MAX} bytes")
    try:
        found = await read_json(request, parts[name].content)
    except (ValueError, RecursionError):
        raise BadBody(f"{name} is not JSON") from None
    if not isinstance(found, dict):
        raise BadBody(f"{name} must be an object")
    return found


async def _pieces(body: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]
        await asyncio.sleep(0)


async def _part(value: UploadFile | str) -> Part:
    if isinstance(value, str):
        return Part(value.encode())
    return Part(await value.read(), value.filename or "")
