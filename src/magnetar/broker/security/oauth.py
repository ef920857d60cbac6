"""SASL's OAUTHBEARER (RFC 7628, KIP-255): a client shows a token of an identity provider.

What must stay true: a token is valid only if a key of the set has signed it.  The code verifies this before it looks at
anything in the token but its header.  As for real Kafka, a token has an end (`exp`), a time of issue (`iat`) and a
user.  A token that names its audience (`aud`) is valid only if it names this server.

The server refuses a client in two steps: it first sends a document, which the client answers, and then the same as an
error.  The client does not learn what is wrong with its token; the log has the reason.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from magnetar.base.clock import Clock
from magnetar.base.settings_oauth import OAuthSettings
from magnetar.broker.security.errors import AuthenticationFailed, LoginRefused
from magnetar.broker.security.key_sets import TokenKeys
from magnetar.broker.security.model import USER, Authenticated, Principal, Refused
from magnetar.broker.security.tokens import (
    TOKEN_BYTES_MAX,
    InvalidToken,
    lifetime_of,
    named_key,
    require_audience,
    require_name,
    signed_claims,
    unsigned_claims,
)

REFUSAL: Final = b'{"status":"invalid_token"}'
MESSAGE_BYTES_MAX: Final = TOKEN_BYTES_MAX + (16 << 10)
_ISSUED_AT: Final = "iat"

_MESSAGE: Final = re.compile(
    # Possessive: what has been read is not read again, so that any message takes time in proportion to its length.
    rb"[ny],(?:a=(?P<authorization_id>(?:[^=,\0\x01]++|=2C|=3D)++))?,\x01"
    rb"(?P<pairs>(?:[A-Za-z]++=[\x21-\x7e \t\r\n]*+\x01)++)\x01"
)
_BEARER: Final = re.compile(r"bearer +(?P<token>[-._~+/A-Za-z0-9]+=*)", re.IGNORECASE)


class BearerTokens:
    """The tokens that a listener takes: those that one of `keys` has signed, or, without `keys`, unsigned ones."""

    def __init__(self, settings: OAuthSettings, keys: TokenKeys | None, clock: Clock) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock

    def begin(self) -> "BearerTokens":
        """What a client says is one message."""
        return self

    def respond(self, message: bytes) -> Authenticated | Refused:
        """See `Exchange`."""
        token, authorization_id = _read(message)
        try:
            user, ends_s = self._user(token)
        except InvalidToken as error:
            return Refused(REFUSAL, f"its token is refused: {error}")
        if authorization_id not in ("", user):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from the token's"
                " principal name"
            )
        return Authenticated(Principal(USER, user), ends_s=ends_s)

    def _user(self, token: str) -> tuple[str, float]:
        """Whom a token is for, and when it ends."""
        settings, claims = self._settings, self._claims(token)
        _, ends_s = lifetime_of(claims, self._clock, settings.skew_ms)
        if ends_s is None:
            raise InvalidToken("it has no end")
        if self._keys is not None:
            if claims.get(_ISSUED_AT) is None:
                raise InvalidToken("it does not say when it was issued")
            if settings.issuer and claims.get("iss") != settings.issuer:
                raise InvalidToken("it is of another issuer")
            if settings.audiences or claims.get("aud") is not None:
                require_audience(claims, "aud", *settings.audiences)
        return require_name(claims.get(settings.subject_claim), settings.subject_claim), ends_s

    def _claims(self, token: str) -> Mapping[str, Any]:
        if self._keys is None:
            return unsigned_claims(token)
        key = self._keys.find(*named_key(token))
        if key is None:
            raise InvalidToken("there is no key of the id and for the algorithm that it names")
        return signed_claims(token, key)


def _read(message: bytes) -> tuple[str, str]:
    """The token, and the authorization id; what else a client says (extensions) changes nothing."""
    found = _MESSAGE.fullmatch(message) if len(message) <= MESSAGE_BYTES_MAX else None
    if found is None:
        raise AuthenticationFailed("its message is none of OAUTHBEARER")
    pairs = [pair.partition(b"=") for pair in found["pairs"][:-1].split(b"\x01")]
    shown = [value for name, _, value in pairs if name == b"auth"]
    bearer = _BEARER.fullmatch(shown[0].decode("ascii")) if len(shown) == 1 else None
    if bearer is None:
        raise AuthenticationFailed("its message has no bearer token")
    try:
        authorization_id = (found["authorization_id"] or b"").decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("its authorization id is no text") from None
    return bearer["token"], authorization_id.replace("=2C", ",").replace("=3D", "=")
