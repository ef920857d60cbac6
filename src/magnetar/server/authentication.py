"""How the server identifies clients of Pulsar's door and of HTTP, from its settings and the keys that they name."""

from collections.abc import Mapping

from magnetar.base.clock import Clock
from magnetar.base.errors import ConfigError
from magnetar.base.key_source import read_key
from magnetar.base.settings_authentication import BASIC, TLS, TOKEN, AuthenticationSettings, TokenSettings
from magnetar.base.settings_openid import OpenIdSettings
from magnetar.base.upkeep import Work
from magnetar.broker.security.authentication import Authentication, Method, by_certificate, first_of
from magnetar.server.bearer import KeptKeySets


async def make_authentication(
    settings: AuthenticationSettings, clock: Clock, environment: Mapping[str, str], key_sets: KeptKeySets
) -> tuple[Authentication, Work | None]:
    """The authentication, and the work to do every `LOOK_INTERVAL_S` seconds so that it follows changes of files, if
    any.

    Raises:
        ConfigError: a key or the file of passwords cannot be used.
    """
    methods: dict[str, Method] = {}
    refresh: Work | None = None
    of_tokens: list[Method] = []
    if settings.token is not None:
        of_tokens.append(_token_method(settings.token, clock, environment))
    if settings.openid is not None:
        of_tokens.append(await _openid_method(settings.openid, clock, key_sets))
    if of_tokens:
        methods[TOKEN] = first_of(of_tokens)
    if TLS in settings.methods:
        methods[TLS] = by_certificate
    if settings.passwords:
        # These imports take a tenth of a second, and only servers with passwords need them.
        from magnetar.server.password_file import PasswordFile

        file = PasswordFile(settings.passwords, environment)
        methods[BASIC], refresh = file.passwords.identify, file.refresh
    return Authentication(methods, settings.anonymous_role, settings.proxy_roles), refresh


def _token_method(settings: TokenSettings, clock: Clock, environment: Mapping[str, str]) -> Method:
    # As above, for servers with tokens.
    from magnetar.broker.security.tokens import TokenValidator, public_key, secret_key, token_method

    data = read_key(settings.setting, settings.key, environment)
    try:
        key = public_key(data, settings.public_algorithm) if settings.public_algorithm else secret_key(data)
    except ConfigError as error:
        raise ConfigError(f"{settings.setting}: {error}") from None
    claims = settings.role_claim, settings.audience_claim, settings.audience
    return token_method(TokenValidator(key, clock, *claims))


async def _openid_method(settings: OpenIdSettings, clock: Clock, key_sets: KeptKeySets) -> Method:
    # As above, for servers with OpenID.
    from magnetar.broker.security.openid import OpenIdTokens

    keys = {issuer: await key_sets.get(where) for issuer, where in settings.issuers}
    return OpenIdTokens(settings, keys, clock).identify
