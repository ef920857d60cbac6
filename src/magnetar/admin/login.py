"""Who sends a request, before any route is looked for: what its headers show, as at Pulsar's door.

A request without a login is answered 401, in the words of Pulsar's broker and without a reason.  Not asked are probes
that tell nothing but whether the server works, and, unless the settings say so, who shows nothing at `/metrics`.
The pipelines' worker shows the server's own token instead, at its own paths, and is no caller anywhere.

A query of a pipeline shows a token that the server has made, and is its owner at the paths that queries need.  Also
where clients need not log in: a token that has ended does not make an anonymous client of a query.

A certificate counts where its client shows nothing else.  A token that is not good is never passed for an anonymous
client.
"""

import asyncio
import base64
import binascii
import html
import logging
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from magnetar.admin.access import Access
from magnetar.admin.answers import OWN_PATHS, failure
from magnetar.admin.context import CALLER, stranger_of
from magnetar.base.distinguished_name import CERTIFICATE_NAME, common_name
from magnetar.base.pipeline_token import is_pipeline_token
from magnetar.base.settings_authentication import BASIC, TLS, TOKEN
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Caller, Credentials
from magnetar.broker.usecases.logins import PIPELINE_METHOD, LoginCases

log = logging.getLogger(__name__)

METRICS: Final = frozenset(("/metrics", "/metrics/"))
OPEN_PATHS: Final = frozenset(("/health", "/ready", "/status.html"))
REQUIRED: Final = "Authentication required"
_CODE: Final = "AUTHENTICATION_REQUIRED"
_METHOD: Final = "x-pulsar-auth-method-name"
_ORIGINAL: Final = "x-original-principal"
_OF_THE_WORKER: Final = f"{OWN_PATHS}v1/worker/"
# What a pipeline's query asks: for topics, where records lie, records, and the places of subscriptions.
_OF_QUERIES: Final = tuple(
    f"{OWN_PATHS}v1/{one}" for one in ("topics", "segments", "leases", "entries", "offsets", "positions")
)
# What the Authorization header calls what Pulsar's clients call otherwise.
_SCHEMES: Final = {"bearer": TOKEN, "basic": BASIC}
# The ways in that a refusal names: some programs show a password only where the server asks for one.
_CHALLENGES: Final = {TOKEN: "Bearer", BASIC: 'Basic realm="Magnetar"'}


class Filter:
    """ASGI middleware: answers 401, or notes who the client is for `caller_of`."""

    def __init__(self, app: ASGIApp, logins: LoginCases, access: Access) -> None:
        self._app = app
        self._logins = logins
        self._access = access
        # A look at a password takes the loop a millisecond or two: one of them in each pass, however many come.
        self._passwords = asyncio.Lock()

    def _is_open(self, path: str, headers: Headers) -> bool:
        """Whether a request without credentials is answered there, too."""
        # Rules may ask for a right to the numbers: a client that logs in has its own rights.
        return path in METRICS and not self._access.asks_for_metrics and "authorization" not in headers

    def _by_certificate(self, scope: Scope, headers: Headers) -> Credentials | None:
        """What a client shows that has a certificate, and shows nothing else: as Pulsar's clients over HTTPS do."""
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
        return self._logins.log_in(stranger, shown, headers.get(_ORIGINAL, ""))[1]

    def _as_pipeline(self, scope: Scope, headers: Headers, token: str) -> Caller:
        stranger = stranger_of(scope, headers)
        if scope["path"].startswith(_OF_QUERIES):
            return self._logins.as_pipeline(stranger, token)
        error = AuthenticationFailed("it shows a pipeline's token where no query of one has anything to ask")
        self._logins.failed(stranger, PIPELINE_METHOD, error)
        raise error

    async def _caller(self, scope: Scope, headers: Headers) -> Caller | None:
        """Who asks; None where that is not asked.  Raises AuthenticationFailed."""
        authorization, path = headers.get("authorization", ""), scope["path"]
        if path in OPEN_PATHS:
            return None  # a probe asks how the server is: credentials that expired must not make it look ill
        _, _, token = authorization.partition(" ")
        if is_pipeline_token(token.strip()):
            return self._as_pipeline(scope, headers, token.strip())
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
                try:
                    caller = await self._caller(scope, headers)
                except AuthenticationFailed as error:
                    log.debug("%s %r is refused: %s", scope["method"], scope["path"], error)
                    await _refusal(Request(scope), headers, self._logins.methods)(scope, receive, send)
                    return
            if caller is not None:
                scope[CALLER] = caller
        await self._app(scope, receive, send)


def _shown(headers: Headers) -> Credentials:
    """What the headers show.

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
