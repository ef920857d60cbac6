"""Tokens of identity providers (OpenID Connect Core 1.0), as Pulsar's AuthenticationProviderOpenID takes them.

What must stay true: a token is valid only if a key of the provider that it names has signed it, and that provider is
one of the configured ones.  The provider that a token names chooses the set of keys, before anything in the token is
known to be true.  The code looks at the rest of a token after its signature.  A token says until when it is valid
(`exp`), when it was issued (`iat`) and for whom (`aud`).

Pulsar's broker also asks for `nbf`, which some providers leave out: without it a token's time has come.
"""

from collections.abc import Mapping
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.settings_openid import OpenIdSettings
from magnetar.broker.security.key_sets import TokenKeys
from magnetar.broker.security.model import Credentials, Identity
from magnetar.broker.security.tokens import (
    InvalidToken,
    claimed_issuer,
    instant_ms,
    lifetime_of,
    named_key,
    require_audience,
    role_in,
    shown_token,
    signed_claims,
)

_ISSUED_AT: Final = "iat"


class OpenIdTokens:
    """`keys` by the names of the issuers."""

    def __init__(self, settings: OpenIdSettings, keys: Mapping[str, TokenKeys], clock: Clock) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock

    def identify(self, credentials: Credentials) -> Identity:
        """Whose token a client shows; see `Method`.  Raises InvalidToken."""
        settings, token = self._settings, shown_token(credentials)
        keys = self._keys.get(claimed_issuer(token))
        if keys is None:
            raise InvalidToken("it is of no issuer that is taken here")
        key = keys.find(*named_key(token))
        if key is None:
            raise InvalidToken("its issuer has no key of the id and for the algorithm that it names")
        claims = signed_claims(token, key)
        lifetime = lifetime_of(claims, self._clock, settings.leeway_ms)
        if lifetime[0] is None:
            raise InvalidToken("it has no end")
        issued_ms = instant_ms(claims, _ISSUED_AT)
        if issued_ms is None:
            raise InvalidToken("it does not say when it was issued")
        if issued_ms - settings.leeway_ms > self._clock.now_ms():
            raise InvalidToken("it has not been issued yet")
        require_audience(claims, "aud", *settings.audiences)
        return Identity(role_in(claims, settings.role_claim), *lifetime)
