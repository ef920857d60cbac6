"""Bodies of type multipart/form-data, which Pulsar's tools send where a file goes with words: parts by name.

A body has at most `FORM_BYTES_MAX` bytes and is read as a whole; a part has no headers but those that name it.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from starlette.requests import Request

from magnetar.admin.answers import BadBody, body_bytes

FORM_BYTES_MAX: Final = 10 << 20
_PARTS_MAX: Final = 20
_HEAD_BYTES_MAX: Final = 4096
_BOUNDARY: Final = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_NAME: Final = re.compile(r'[;\s]name="([^"]*)"', re.IGNORECASE)
_FILE: Final = re.compile(r'[;\s]filename="([^"]*)"', re.IGNORECASE)
_DISPOSITION: Final = re.compile(r"^content-disposition:(.*)$", re.IGNORECASE | re.MULTILINE)


class Part(NamedTuple):
    """A part of a form; `file_name` is empty if it is not a file."""

    content: bytes
    file_name: str = ""


async def form_body(request: Request) -> Mapping[str, Part]:
    """The parts of the body.  Raises BadBody, and Refused as `body_bytes`."""
    kind = request.headers.get("content-type", "")
    found = _BOUNDARY.search(kind)
    if not kind.lower().startswith("multipart/form-data") or found is None:
        raise BadBody("the body must be a form (multipart/form-data) with a boundary")
    return parts_of(await body_bytes(request, FORM_BYTES_MAX), found[1] or found[2])


def parts_of(body: bytes, boundary: str) -> Mapping[str, Part]:
    """The parts of a form by name.  Raises BadBody."""
    mark = b"\r\n--" + boundary.encode("latin-1", "replace")
    pieces = (b"\r\n" + body).split(mark, _PARTS_MAX + 2)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise BadBody(f"the form does not end, or has more than {_PARTS_MAX} parts")
    parts: dict[str, Part] = {}
    for piece in pieces[1:-1]:
        head, separator, content = piece.partition(b"\r\n\r\n")
        if not separator or len(head) > _HEAD_BYTES_MAX:
            raise BadBody("a part of the form has no head")
        disposition = _DISPOSITION.search(head.decode("utf-8", "replace").replace("\r\n", "\n"))
        name = None if disposition is None else _NAME.search(disposition[1])
        if disposition is None or name is None or name[1] in parts:
            raise BadBody("a part of the form has no name, or the name of another part")
        file = _FILE.search(disposition[1])
        parts[name[1]] = Part(content, "" if file is None else file[1])
    return parts
