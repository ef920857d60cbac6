"""Which programs may use HTTP: no page of another site in a browser.  (`login.py` checks who the client is.)

A browser sends requests for any page that it shows, also to loopback and private networks.  Three checks run before
the routing, so that they protect every route:

* **Host** names this server: a numeric address, `localhost`, a name on which the server listens or that it tells
  clients, or one of `http.allowed.hosts`.  If a page makes its own name resolve to this machine (DNS rebinding), its
  browser sees the same origin, and only Host shows the difference.  A page cannot rebind a numeric address.
* **Origin** and **Sec-Fetch-Site**, which a page cannot forge: requests of other sites' pages are refused, except
  those of `http.allowed.origins`.  Browsers send Origin with every POST, PUT and DELETE, and Sec-Fetch-Site also with
  images and links.  They send the latter only to https and loopback (not to `0.0.0.0`, which leads to loopback, and
  not to a private network).  So a browser that sends neither is refused those GETs of Pulsar that change something.
* **Content-Type** of a body is JSON or one of Pulsar's own JSON types.  Types that a page may send without a preflight
  request (text/plain, forms, a Blob without a type) get 415.  Functions and packages come as forms with files; a
  browser that sends such a form has to say for which page.  A PUT of a number of partitions may be text/plain, as
  in Pulsar, because browsers send a preflight request before any PUT to another site.  Record batches of links come
  as application/octet-stream, before which browsers send such a request, too.

Probes (`PROBES`) are answered with any Host: load balancers use their own names for a server, and the answers have
nothing confidential.
"""

from typing import Final

from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from magnetar.admin.access import Access
from magnetar.admin.answers import failure

PROBES: Final = frozenset(
    ("/health", "/ready", "/status.html", "/admin/v2/brokers/health", "/admin/v2/brokers/ready")
)
_CHANGES_NOTHING: Final = ("GET", "HEAD", "OPTIONS")
_JSON: Final = "application/json"
# pulsar-admin and Pulsar's Go client use it to create partitioned topics with properties.
_JSON_OF_PULSAR: Final = ("application/vnd.", "+json")
_TEXT: Final = "text/plain"
_PARTITIONS: Final = "/partitions"
_BROWSERS: Final = "mozilla/"  # the beginning of each browser's User-Agent, which a page cannot change
# Functions, connectors and packages come as forms.
_FORMS: Final = ("functions", "packages", "sink", "sinks", "source", "sources")
_FORMS_BELOW: Final = tuple(f"/admin/v3/{word}/" for word in _FORMS)
_FORM: Final = "multipart/form-data"
_BATCHES_BELOW: Final = "/magnetar/v1/links/"
_BYTES: Final = "application/octet-stream"


class Guard:
    """ASGI middleware: it refuses a request with one sentence, or passes it on unchanged."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal is not None:
                await failure(Request(scope), *refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """The status and reason of a refusal; None if the request may pass."""
        headers = Headers(scope=scope)
        path = scope["path"]
        host = headers.get("host")
        if host is not None and path not in PROBES and not self._access.takes_host(host):
            return 403, (
                f"this server is not known as {host[:200]!r}: use its address, or add the name to http.allowed.hosts"
            )
        foreign = self._foreign(headers, f"{scope['scheme']}://{host}")
        if foreign:
            return foreign
        if scope["method"] in _CHANGES_NOTHING:
            return _changing_get(scope, headers)
        return _wrong_type(scope["method"], path, headers)

    def _foreign(self, headers: Headers, own: str) -> tuple[int, str] | None:
        origin = headers.get("origin")
        if origin is not None:
            if self._access.takes_origin(origin, own):
                return None
            return 403, (
                f"pages of {origin[:200]} may not ask this server: add the origin to http.allowed.origins if they shall"
            )
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "a page of another site sent this request: open the address by itself"
        return None


def _changing_get(scope: Scope, headers: Headers) -> tuple[int, str] | None:
    """The refusal of a GET that changes something, if a browser may have sent it, such as for an image of a page."""
    path = scope["path"]
    changes = path == "/admin/v2/brokers/backlog-quota-check" or (
        path.endswith(_PARTITIONS) and "checkAllowAutoCreation" in QueryParams(scope["query_string"])
    )
    return _silent_browser(headers) if changes else None


def _silent_browser(headers: Headers) -> tuple[int, str] | None:
    """The refusal of a browser that does not say for which page it asks."""
    if not headers.get("user-agent", "").lower().startswith(_BROWSERS):
        return None
    if "origin" in headers or "sec-fetch-site" in headers:  # which were checked before
        return None
    return (
        403,
        "a browser sent this request, which changes something, and does not say for which page: use a tool",
    )


def _wrong_type(method: str, path: str, headers: Headers) -> tuple[int, str] | None:
    """The refusal of a body's type, even if the route does not read the body: a later version of the route may."""
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    given = headers.get("content-type")
    kind = (given or "").partition(";")[0].strip().lower()
    if kind == _JSON or (kind.startswith(_JSON_OF_PULSAR[0]) and kind.endswith(_JSON_OF_PULSAR[1])):
        return None
    if kind == _FORM and path.startswith(_FORMS_BELOW):
        return _silent_browser(headers)
    if kind == _BYTES and path.startswith(_BATCHES_BELOW):
        return None
    if kind == _TEXT and method == "PUT" and path.endswith(_PARTITIONS):
        return None
    if given is None and not has_body:
        return None
    said = f"not {kind[:100]}" if kind else "and the request does not say so"
    return 415, f"the body must be JSON with Content-Type: {_JSON}, {said}"
