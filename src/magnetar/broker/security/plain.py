"""SASL's PLAIN (RFC 4616): `authorization id NUL user NUL password`, in one message.

A password is compared by a digest under a key of this process, which takes as long for a user that there is not, and
for a password of any length.
"""

import hmac
from collections.abc import Mapping
from typing import Final

from magnetar.base.secret import secret_bytes
from magnetar.broker.security.errors import LoginRefused
from magnetar.broker.security.model import USER, Authenticated, Principal

_TOKENS_MAX: Final = 4  # Kafka counts no further


class PlainUsers:
    """The users of a listener and their passwords."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
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
        if not hmac.compare_digest(known, self._digest(password)):
            raise LoginRefused("Authentication failed: Invalid username or password")
        if authorization_id not in (b"", user):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Authenticated(Principal(USER, user.decode()))

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, "sha256")
