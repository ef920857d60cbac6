"""Which programs may use HTTP, whoever they are: no page of another site in a browser (`login.py` asks who they are).

A browser sends requests for whatever page it shows, to loopback and private networks too.  Three checks, before any
route is looked for, so that no route can be without them:

* **Host** names this server: a numeric address, `localhost`, a name that the server listens on or tells clients, or one
  of `http.allowed.hosts`.  A page whose own name is made to resolve to this machine (DNS rebinding) is of the same
  origin for its browser, and only its Host gives it away; a numeric address cannot be rebound.
* **Origin** and **Sec-Fetch-Site**, which a page cannot forge: requests of other sites' pages are refused, except
  those of `http.allowed.origins`.  Browsers send Origin with every POST, PUT and DELETE, and Sec-Fetch-Site with images
  and links, too.
  They send the latter to https and loopback only (not to `0.0.0.0`, which leads to loopback, nor to a private network),
  so the GETs of Pulsar's that change something are refused to a browser that sends neither.
* **Content-Type** of a body is JSON's or one of Pulsar's own JSON types.  What a page may send without asking first
  (text/plain, forms, a Blob without a type) is refused: 415.  The number of a PUT's partitions may be text/plain, as
  Pulsar takes it: no page sends a PUT to another site without asking.

Probes (`PROBES`) are answered whatever Host says: load balancers have names of their own for a server, and an answer
tells nothing that is worth taking.
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
# pulsar-admin and Pulsar's Go client create partitioned topics with properties by it.
_JSON_OF_PULSAR: Final = ("application/vnd.", "+json")
_TEXT: Final = "text/plain"
_PARTITIONS: Final = "/partitions"
_BROWSERS: Final = "mozilla/"  # what each of them calls itself first; a page cannot change it
# Functions and packages come as forms.  None of them is served here: what lies below is answered 501.
_FORMS: Final = ("functions", "packages", "sink", "sinks", "source", "sources")
_FORMS_BELOW: Final = tuple(f"/admin/v3/{word}/" for word in _FORMS)
_FORM: Final = "multipart/form-data"


class Guard:
    """ASGI middleware: refuses with one sentence, or passes a request on untouched."""

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
        """Status and reason."""
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
    """Refused where it may be a page's image: Pulsar's clients and people's tools are no browsers."""
    path = scope["path"]
    changes = path == "/admin/v2/brokers/backlog-quota-check" or (
        path.endswith(_PARTITIONS) and "checkAllowAutoCreation" in QueryParams(scope["query_string"])
    )
    if not changes or not headers.get("user-agent", "").lower().startswith(_BROWSERS):
        return None
    if "origin" in headers or "sec-fetch-site" in headers:  # which have been looked at
        return None
    return (
        403,
        "a browser sent this request, which changes something, and does not say for which page: use a tool",
    )


def _wrong_type(method: str, path: str, headers: Headers) -> tuple[int, str] | None:
    """Refused also where a route would not read the body: a later route may, and no client sends one in vain."""
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    given = headers.get("content-type")
    kind = (given or "").partition(";")[0].strip().lower()
    if kind == _JSON or (kind.startswith(_JSON_OF_PULSAR[0]) and kind.endswith(_JSON_OF_PULSAR[1])):
        return None
    if kind == _FORM and path.startswith(_FORMS_BELOW):
        return None
    if kind == _TEXT and method == "PUT" and path.endswith(_PARTITIONS):
        return None
    if given is None and not has_body:
        return None
    said = f"not {kind[:100]}" if kind else "and the request does not say so"
    return 415, f"the body must be JSON with Content-Type: {_JSON}, {said}"
