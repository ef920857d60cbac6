"""SCRAM (RFC 5802, RFC 7677), the server's side of it.

The server keeps salt, iterations, stored key and server key of a password: no client can log in with these.  The server
needs one digest and two HMACs for a login, however many iterations a client has to do.

A user that does not exist gets salt and iterations like any other, made from a secret of the server, the same each
time.  The keys that go with them belong to no password.  So every login takes the same steps, and a wrong one fails at
the last of them.

A client with the extension `tokenauth=true` (KIP-48) names a delegation token instead of a user: names of the two have
nothing to do with each other.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from magnetar.base.secret import secret_bytes
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Authenticated, Challenge

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
MESSAGE_BYTES_MAX: Final = 16 << 10
_NONCE_BYTES: Final = 24

_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[^,\0]*)*"
_CLIENT_FIRST: Final = re.compile(
    r"(?P<header>[ny],(?:a=(?P<authorization_id>[^,\0]*))?,)"
    r"(?P<bare>n=(?P<user>[^,\0]+),r=(?P<nonce>[!-+\--~]+)(?P<extensions>" + _EXTENSIONS + "))"
)
_CLIENT_FINAL: Final = re.compile(
    r"c=(?P<header>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)" + _EXTENSIONS + r"(?=,p=)"
)
_ESCAPE: Final = re.compile("=(2C|3D|)")
_EXTENSION: Final = re.compile(r",([A-Za-z]+)=([^,\0]*)")
_BY_TOKEN: Final = "tokenauth"  # noqa: S105  the name of an extension


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is kept of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of(cls, algorithm: str, salt: bytes, iterations: int, salted_password: bytes) -> "ScramCredential":
        client_key = hmac.digest(salted_password, b"Client Key", algorithm)
        stored_key = hashlib.new(algorithm, client_key).digest()
        return cls(salt, iterations, stored_key, hmac.digest(salted_password, b"Server Key", algorithm))


class ScramBook(NamedTuple):
    """The names that log in by one mechanism.

    `find` gives the credential of a name, or one that belongs to no password; `user_of` the user that a name stands
    for, empty if there is no such name.  `let_in` is called with a name whose password was shown and with what goes to
    the client, and raises AuthenticationFailed if the name is not there any more.
    """

    find: Callable[[str], ScramCredential]
    user_of: Callable[[str], str]
    let_in: Callable[[str, bytes], Authenticated]


class ScramExchange:
    """One client's login, by the name of a user or of a delegation token."""

    def __init__(self, algorithm: str, users: ScramBook, tokens: ScramBook) -> None:
        self._algorithm = algorithm
        self._book = self._users = users
        self._tokens = tokens
        self._name = self._header = self._nonce = ""
        self._credential: ScramCredential | None = None
        self._said = ""  # by both, as it is signed
        self._server_nonce = b64encode(secret_bytes(_NONCE_BYTES)).decode()

    def respond(self, message: bytes) -> Challenge | Authenticated:
        """See `Exchange`."""
        if len(message) > MESSAGE_BYTES_MAX:
            raise AuthenticationFailed
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed from None
        if self._credential is None:
            return self._begin(text)
        try:
            return self._end(text, self._credential)
        except AuthenticationFailed as refusal:
            refusal.user = self._book.user_of(self._name)
            raise

    def _begin(self, text: str) -> Challenge:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise AuthenticationFailed
        self._name = _unescaped(found["user"])
        if found["authorization_id"] and _unescaped(found["authorization_id"]) != self._name:
            raise AuthenticationFailed
        extensions = dict(_EXTENSION.findall(found["extensions"]))
        self._book = self._tokens if extensions.get(_BY_TOKEN, "").lower() == "true" else self._users
        credential = self._credential = self._book.find(self._name)
        self._header, self._nonce = found["header"], found["nonce"] + self._server_nonce
        answer = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._said = f"{found['bare']},{answer}"
        return Challenge(answer.encode())

    def _end(self, text: str, credential: ScramCredential) -> Authenticated:
        found = _CLIENT_FINAL.match(text)
        if found is None or found["nonce"] != self._nonce:
            raise AuthenticationFailed
        proof = _decoded(text[found.end() + len(",p=") :])
        if _decoded(found["header"]) != self._header.encode() or len(proof) != len(credential.stored_key):
            raise AuthenticationFailed
        said = f"{self._said},{found[0]}".encode()
        signature = hmac.digest(credential.stored_key, said, self._algorithm)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._algorithm, client_key).digest(), credential.stored_key):
            raise AuthenticationFailed
        server_signature = hmac.digest(credential.server_key, said, self._algorithm)
        return self._book.let_in(self._name, b"v=" + b64encode(server_signature))


def _unescaped(name: str) -> str:
    if any(one[1] == "" for one in _ESCAPE.finditer(name)):
        raise AuthenticationFailed
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text.encode("ascii", "replace"), validate=True)
    except ValueError:
        raise AuthenticationFailed from None
