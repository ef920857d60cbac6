"""SASL's PLAIN (RFC 4616): `authorization id NUL user NUL password`, in one message.

The server compares a password by a digest under a key of this process.  This takes as long for a user that does not
exist, and for a password of any length.

As in KoP, a password `token:...` that is not this user's own password is a token, and the client is the principal of
the token.  The server then ignores the user name: KoP's clients send a tenant and a namespace there.
"""

import hmac
from collections.abc import Callable, Mapping
from typing import Final

from magnetar.base.secret import secret_bytes
from magnetar.broker.security.errors import AuthenticationFailed, LoginRefused
from magnetar.broker.security.model import USER, Authenticated, Login, Principal

_TOKENS_MAX: Final = 4  # Kafka counts no further
_SHOWS_TOKEN: Final = b"token:"
_WRONG: Final = "Authentication failed: Invalid username or password"


class PlainUsers:
    """The users of a listener and their passwords; `by_token` lets in a client that shows a token, where tokens are
    taken, and raises AuthenticationFailed.
    """

    def __init__(
        self, passwords: Mapping[str, str], by_token: Callable[[bytes], Login] | None = None
    ) -> None:
        self._by_token = by_token
        self._key = secret_bytes(32)
        self._digests = {
            user.encode(): self._digest(password.encode()) for user, password in passwords.items()
        }
        self._of_no_password = secret_bytes(32)

    def begin(self) -> "PlainUsers":
        """The one message needs nothing of an exchange's own."""
        return self

    def respond(self, message: bytes) -> Authenticated:
        """See `Exchange`."""
        tokens = message.split(b"\0", _TOKENS_MAX)[:_TOKENS_MAX]
        if len(tokens) != 3:
            raise LoginRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}")
        authorization_id, user, password = tokens
        if not user:
            raise LoginRefused("Authentication failed: username not specified")
        if not password:
            raise LoginRefused("Authentication failed: password not specified")
        known = self._digests.get(user, self._of_no_password)
        if hmac.compare_digest(known, self._digest(password)):
            authenticated = Authenticated(Principal(USER, user.decode()))
        elif self._by_token is not None and password.startswith(_SHOWS_TOKEN):
            authenticated = _by_token(self._by_token, password[len(_SHOWS_TOKEN) :])
        else:
            known_user = user.decode("utf-8", "replace") * (user in self._digests)  # the same steps for all
            raise LoginRefused(_WRONG).of(known_user)
        if authorization_id not in (b"", user):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return authenticated

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, "sha256")


def _by_token(log_in: Callable[[bytes], Login], token: bytes) -> Authenticated:
    try:
        login = log_in(token)
    except AuthenticationFailed as error:
        raise LoginRefused(_WRONG, f"its token is refused: {error}") from None
    return Authenticated(login.principal, ends_s=login.identity.ends_s)
