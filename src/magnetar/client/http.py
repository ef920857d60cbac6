"""Sends HTTP requests to one server, one after the other, and tries again if it does not answer.

If a connection cannot be opened or breaks, or the server answers 503, the client tries again, with growing pauses,
until `retry_s` have passed.  So it must only be used for requests that may be repeated.  Several threads may use one
client.

The first client imports urllib3, not this module: every command of the command line imports this module, and most of
them send no request.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from magnetar.base.error_codes import CROWDED
from magnetar.client.errors import (
    BadAnswer,
    ClientError,
    NotFound,
    OutOfRange,
    Refused,
    Unavailable,
    Unreachable,
)
from magnetar.client.login import Login

if TYPE_CHECKING:
    import urllib3

Query = Mapping[str, str] | Sequence[tuple[str, str]] | None  # pairs if a name may occur twice

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
CONNECT_S: Final = 5.0
_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 2.0
_KINDS: Final[Mapping[int, type[Refused]]] = {404: NotFound, 416: OutOfRange, 503: Unavailable}


class HttpClient:
    """`url` is the server's, such as `http://localhost:8080`.  Times are in seconds; `read_s` is for one answer.

    `login` says which server certificates to trust, and has the token for each request.  Raises ConfigError if it
    cannot be used.
    """

    def __init__(
        self, url: str, *, read_s: float = 60.0, retry_s: float = 30.0, login: Login | None = None
    ) -> None:
        import urllib3

        if "@" in url:  # a password would appear in errors, and so in logs
            raise ClientError(
                "the server's address has a user in it, which no server is shown: use a context"
            )
        try:
            parsed = urllib3.util.parse_url(url)
        except urllib3.exceptions.LocationParseError:
            parsed = None
        if parsed is None or parsed.scheme not in ("http", "https") or not parsed.host:
            raise ClientError(f"{url!r} is not the address of a server: it looks like http://localhost:8080")
        self.url = url.rstrip("/")
        self.login = login or Login()
        self._read_s = read_s
        self._retry_s = retry_s
        trusting = self.login.trusting() if self.login.ca and parsed.scheme == "https" else None
        self._pool = urllib3.PoolManager(maxsize=8, retries=False, ssl_context=trusting)

    def close(self) -> None:
        self._pool.clear()

    def get_json(self, path: str, query: Query = None) -> Any:
        return self._parsed(self.request("GET", path, query=query))

    def send_json(self, method: str, path: str, body: Any = None, query: Query = None) -> Any:
        """Send a JSON body; returns the JSON answer, None if it is empty."""
        content = None if body is None else json.dumps(body).encode()
        response = self.request(method, path, query=query, body=content)
        return self._parsed(response) if response.data else None

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = None,
        body: bytes | None = None,
        body_type: str = JSON,
        wait_s: float = 0.0,
    ) -> "urllib3.BaseHTTPResponse":
        """Send a request; returns a successful answer, with its whole body.  `body_type` is the MIME type of `body`;
        `wait_s` is how much longer than usual the server may take.

        Raises:
            Unreachable, Refused (NotFound, OutOfRange, Unavailable)
            ConfigError: the token cannot be read.
        """
        give_up_at = time.monotonic() + self._retry_s
        pause_s = _PAUSE_S
        while True:
            try:
                return self._request_once(method, path, query, body, body_type, wait_s)
            except (Unreachable, Unavailable):
                if time.monotonic() + pause_s > give_up_at:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _request_once(
        self, method: str, path: str, query: Query, body: bytes | None, body_type: str, wait_s: float
    ) -> "urllib3.BaseHTTPResponse":
        response = self._answer(method, path, query, body, body_type, wait_s)
        # The server has not carried out a refused request, so it may be sent again with another token.
        if response.status == 401 and self.login.has_another_token():
            response = self._answer(method, path, query, body, body_type, wait_s)
        if response.status < 300:
            return response
        raise self._refusal(response)

    def _answer(
        self, method: str, path: str, query: Query, body: bytes | None, body_type: str, wait_s: float
    ) -> "urllib3.BaseHTTPResponse":
        import urllib3

        headers = {} if body is None else {"content-type": body_type}
        if self.login.token:
            headers["authorization"] = f"Bearer {self.login.token}"
        timeout = urllib3.Timeout(connect=CONNECT_S, read=self._read_s + wait_s)
        target = self.url + path if not query else f"{self.url}{path}?{urlencode(query)}"
        try:
            return self._pool.request(method, target, body=body, headers=headers, timeout=timeout)
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"the server at {self.url} does not answer: {error}") from error

    def _refusal(self, response: "urllib3.BaseHTTPResponse") -> ClientError:
        try:
            document = json.loads(response.data)
            reason, code = str(document["reason"]), str(document.get("error", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            if response.status == 503:  # refused before the server's own code ran
                return Unavailable(f"the server at {self.url} has too many connections", CROWDED, 503)
            return BadAnswer(
                f"{self.url} answered with status {response.status}, and not as a Magnetar server does"
            )
        return _KINDS.get(response.status, Refused)(reason, code, response.status)

    def _parsed(self, response: "urllib3.BaseHTTPResponse") -> Any:
        try:
            return json.loads(response.data)
        except ValueError as error:
            raise BadAnswer(f"{self.url} answered with what is not JSON: {error}") from None
