"""The login of HTTP requests, before the routing: by their headers, as in Pulsar's protocol.

A request without a login gets 401, with the text of Pulsar's broker and without a reason.  No login is needed for
probes that only show whether the server works, or, unless the settings demand it, for `/metrics`.  A probe that logs in
all the same gets a longer answer if its rights allow that; a probe with an invalid login gets the short one.  The
pipelines' worker sends the server's own token instead, on its own paths, and is not a caller.

A query of a pipeline sends a token that the server has created, and on the paths that queries need it is the
pipeline's owner.  This is checked even if clients need not log in: a query with an expired token must not become an
anonymous client.  A function's process has nothing to ask over HTTP, so its token is refused.

A certificate counts if its client sends nothing else.  A client with an invalid token never counts as anonymous.
"""

import asyncio
import base64
import binascii
import html
import logging
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from magnetar.admin.access import Access
from magnetar.admin.answers import OWN_PATHS, failure
from magnetar.admin.context import CALLER, stranger_of
from magnetar.base.distinguished_name import CERTIFICATE_NAME, common_name
from magnetar.base.settings_authentication import BASIC, TLS, TOKEN
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Caller, Credentials
from magnetar.broker.usecases.logins import LoginCases

log = logging.getLogger(__name__)

METRICS: Final = frozenset(("/metrics", "/metrics/"))
OPEN_PATHS: Final = frozenset(("/health", "/ready", "/status.html"))
REQUIRED: Final = "Authentication required"
_CODE: Final = "AUTHENTICATION_REQUIRED"
_METHOD: Final = "x-pulsar-auth-method-name"
_ORIGINAL: Final = "x-original-principal"
_OF_THE_WORKER: Final = f"{OWN_PATHS}v1/worker/"
# The paths of a pipeline's query: topics, the places of records, records, the positions of subscriptions, and how far a
# replicator may read.  Also the path that says where the Pulsar port is, for the consumer of a replicator.
_QUERIES: Final = ("topics", "segments", "leases", "entries", "offsets", "positions", "admissions")
_OF_QUERIES: Final = (
    *(f"{OWN_PATHS}v1/{one}" for one in _QUERIES),
    "/lookup/v2/topic/",
)
# The names in the Authorization header of methods that have other names in Pulsar's clients.
_SCHEMES: Final = {"bearer": TOKEN, "basic": BASIC}
# The methods that a refusal names: some programs send a password only if the server asks for one.
_CHALLENGES: Final = {TOKEN: "Bearer", BASIC: 'Basic realm="Magnetar"'}


class Filter:
    """ASGI middleware: it answers 401, or notes for `caller_of` who the client is."""

    def __init__(self, app: ASGIApp, logins: LoginCases, access: Access) -> None:
        self._app = app
        self._logins = logins
        self._access = access
        # A check of a password takes the loop 1 to 2 ms: only one in each pass, however many come.
        self._passwords = asyncio.Lock()

    def _is_open(self, path: str, headers: Headers) -> bool:
        """Whether a request without credentials is answered on this path."""
        # Rules may demand a right for metrics; a client that logs in has its own rights.
        return path in METRICS and not self._access.asks_for_metrics and "authorization" not in headers

    def _by_certificate(self, scope: Scope, headers: Headers) -> Credentials | None:
        """The credentials of a client that has a certificate and sends nothing else, as Pulsar's clients over HTTPS
        do.
        """
        name = common_name(scope.get("state", {}).get(CERTIFICATE_NAME) or "")
        if not name or TLS not in self._logins.methods or "authorization" in headers:
            return None
        return Credentials(TLS, certificate_name=name) if headers.get(_METHOD, "") in ("", TLS) else None

    async def _log_in(self, scope: Scope, headers: Headers) -> Caller:
        stranger = stranger_of(scope, headers)
        try:
            shown = self._by_certificate(scope, headers) or _shown(headers)
        except AuthenticationFailed as error:
            self._logins.failed(stranger, "", error)
            raise
        if shown.method == BASIC:
            async with self._passwords:
                await asyncio.sleep(0)
        # Pulsar's proxy passes the token of an HTTP client on, and names the client beside it.
        return self._logins.log_in(stranger, shown, headers.get(_ORIGINAL, ""), may_be_itself=True)[1]

    def _as_job(self, scope: Scope, headers: Headers, shown: Credentials) -> Caller:
        stranger = stranger_of(scope, headers)
        if shown.is_of_pipeline and scope["path"].startswith(_OF_QUERIES):
            return self._logins.log_in(stranger, shown)[1]
        told = f"it shows a token of a {shown.job}, which has nothing to ask there"
        self._logins.failed(stranger, shown.job, AuthenticationFailed(told))
        raise AuthenticationFailed(told)

    async def _prober(self, scope: Scope, headers: Headers) -> Caller | None:
        """The caller of a probe; None if it shows nothing, or something that is refused: expired credentials must not
        make the server look ill.
        """
        if "authorization" in headers or self._by_certificate(scope, headers) is not None:
            with suppress(AuthenticationFailed):
                return await self._caller(scope, headers)
        return None

    async def _caller(self, scope: Scope, headers: Headers) -> Caller | None:
        """The caller; None if no login is needed.  Raises AuthenticationFailed."""
        authorization, path = headers.get("authorization", ""), scope["path"]
        shown = Credentials(TOKEN, authorization.partition(" ")[2].strip().encode())
        if shown.job:
            return self._as_job(scope, headers, shown)
        if not self._logins.are_required or self._is_open(path, headers):
            return None
        if path.startswith(_OF_THE_WORKER) and self._access.is_worker(authorization):
            return None
        return await self._log_in(scope, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            caller = None
            if self._logins.are_required or "authorization" in headers:
                find = self._prober if scope["path"] in OPEN_PATHS else self._caller
                try:
                    caller = await find(scope, headers)
                except AuthenticationFailed as error:
                    log.debug("%s %r is refused: %s", scope["method"], scope["path"], error)
                    await _refusal(Request(scope), headers, self._logins.methods)(scope, receive, send)
                    return
            if caller is not None:
                scope[CALLER] = caller
        await self._app(scope, receive, send)


def _shown(headers: Headers) -> Credentials:
    """The credentials in the headers.

    Raises:
        AuthenticationFailed: they contradict each other, or are malformed.
    """
    named = headers.get(_METHOD, "")
    given = headers.getlist("authorization")
    if len(given) > 1:
        raise AuthenticationFailed("it has more than one Authorization")
    if not given:
        return Credentials(named)
    scheme, _, data = given[0].partition(" ")
    method = _SCHEMES.get(scheme.lower(), "")
    if not method or named not in ("", method):
        raise AuthenticationFailed("its Authorization is not of a kind that is taken here")
    try:
        if method == "basic":
            return Credentials(method, base64.b64decode(data.strip(), validate=True))
        return Credentials(method, data.strip().encode("ascii"))
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("its Authorization is malformed") from None


def _refusal(request: Request, headers: Headers, methods: Collection[str]) -> Response:
    path = request.url.path
    response: Response
    if path.startswith(OWN_PATHS):
        response = failure(request, 401, REQUIRED, _CODE)
    elif "application/json" in headers.get("accept", ""):
        content = {"url": path, "status": "401", "message": REQUIRED, "reason": REQUIRED}
        response = JSONResponse(content, 401)
    else:
        response = HTMLResponse(
            f"<html><head><title>Error 401 {REQUIRED}</title></head>"
            f"<body><h2>HTTP ERROR 401 {REQUIRED}</h2><p>{html.escape(path)}</p></body></html>",
            401,
        )
    challenges = [challenge for method, challenge in _CHALLENGES.items() if method in methods]
    if challenges:
        response.headers["www-authenticate"] = ", ".join(challenges)
    return response
