"""An identity provider for a test: OpenID Connect's discovery, a JWK Set, and tokens for clients with a secret.

    with IdentityProvider("my-audience") as provider:
        provider.add_client("alice", "her secret")
        settings = {"sasl.oauthbearer.jwks.endpoint.url": provider.keys_url, ...}

It listens on loopback, in a thread of this process, over HTTP without TLS.  At any time a test can make it hang
(`gate`) or fail (`status`), or change its keys (`keys`).  To a GET that names a client it gives a token as the metadata
service of Azure's machines does.
"""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

KEY: Final = "one"
GATE_S_MAX: Final = 30.0
DISCOVERY: Final = "/.well-known/openid-configuration"
_OF_METADATA: Final = ("api-version", "resource", "client_id")  # what a machine's request names


class Client(NamedTuple):
    """A client; `forged`: its tokens are signed by a key that is not in the set."""

    secret: str
    forged: bool


class IdentityProvider:
    """Tokens are for `audience`, and name `issuer` as their issuer, which is by default the provider's own URL.

    `asked` counts the requests for keys; each waits for `gate`, and gets `status`.  Tokens are valid for `life_s`
    seconds; if that is negative, they have expired.
    """

    def __init__(self, audience: str, issuer: str = "", life_s: float = 600) -> None:
        self.keys = {KEY: new_key()}
        self.status = 200
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()
        self._clients: dict[str, Client] = {}
        self._unpublished = new_key()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.keys_url = f"{self.url}/keys"
        self.token_url = f"{self.url}/token"
        self.issuer = issuer or self.url
        self.audience = audience
        self.life_s = life_s
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Answer no more requests."""
        self.gate.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def add_client(self, name: str, secret: str, *, forged: bool = False) -> None:
        """Add a client that gets tokens for itself with its secret (OAuth 2's client credentials)."""
        self._clients[name] = Client(secret, forged)

    def key_set(self) -> bytes:
        """The published JWK Set."""
        keys = [
            {
                **jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True),
                "kid": name,
                "alg": "RS256",
            }
            for name, key in self.keys.items()
        ]
        return json.dumps({"keys": keys}).encode()

    def token(self, user: str, key: str = KEY, life_s: float | None = None, **changed: Any) -> str:
        """A token of `user`; `changed` has other claims."""
        return self._signed(user, self.keys[key], key, self.life_s if life_s is None else life_s, changed)

    def forged_token(self, user: str) -> str:
        """A token that names the first key, but is signed by another one."""
        return self._signed(user, self._unpublished, KEY, self.life_s, {})

    def _signed(
        self, user: str, key: RSAPrivateKey, name: str, life_s: float, changed: dict[str, Any]
    ) -> str:
        now_s = int(time.time())
        claims: dict[str, Any] = {"sub": user, "client_id": user, "iss": self.issuer, "aud": self.audience}
        claims |= {"iat": now_s - 1, "nbf": now_s - 1, "exp": int(now_s + life_s)}
        return jwt.encode(claims | changed, key, "RS256", headers={"kid": name})

    def _grant(self, name: str, secret: str) -> bytes | None:
        """The answer to a client's request for a token; None if the client or its secret is wrong."""
        client = self._clients.get(name)
        if client is None or client.secret != secret:
            return None
        return self._granted(self.forged_token(name) if client.forged else self.token(name))

    def _grant_machine(self, query: str) -> bytes | None:
        """The answer to a machine that asks for a token of its identity; None if its query lacks a part."""
        named = {key: values[0] for key, values in parse_qs(query).items()}
        if not all(key in named for key in _OF_METADATA):
            return None
        return self._granted(self.token(named["client_id"]))

    def _granted(self, token: str) -> bytes:
        lives_s = max(int(self.life_s), 0)
        return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": lives_s}).encode()

    def _document(self) -> bytes:
        endpoints = {"issuer": self.issuer, "jwks_uri": self.keys_url, "token_endpoint": self.token_url}
        return json.dumps(endpoints).encode()

    def _published(self) -> tuple[int, bytes]:
        self.asked += 1
        self.gate.wait(GATE_S_MAX)
        return self.status, self.key_set() if self.status == 200 else b"no"


def new_key() -> RSAPrivateKey:
    """A new key for `keys`."""
    return rsa.generate_private_key(65537, 2048)


def _handler(provider: IdentityProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == DISCOVERY:
                self._answer(200, provider._document())
            elif self.path == "/keys":
                self._answer(*provider._published())
            elif urlsplit(self.path).path == "/token":
                answer = provider._grant_machine(urlsplit(self.path).query)
                self._answer(200 if answer else 400, answer or b'{"error":"invalid_request"}')
            else:
                self._answer(404, b"{}")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
            answer = provider._grant(*_credentials(self.headers.get("Authorization", ""), body))
            self._answer(200 if answer else 401, answer or b'{"error":"invalid_client"}')

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    return Handler


def _credentials(authorization: str, body: str) -> tuple[str, str]:
    """A client's name and secret, from a header or from the form (RFC 6749, section 2.3.1)."""
    if authorization.startswith("Basic "):
        name, _, secret = base64.b64decode(authorization[6:]).decode().partition(":")
        return unquote(name), unquote(secret)
    form = parse_qs(body)
    return form.get("client_id", [""])[0], form.get("client_secret", [""])[0]
