"""What an HTTP server answers, refusals as well."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus


def ask(
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    body: bytes | None = None,
    context: ssl.SSLContext | None = None,
) -> tuple[int, bytes]:
    """The status, and the body."""
    request = urllib.request.Request(url, body, dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return HTTPStatus(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
