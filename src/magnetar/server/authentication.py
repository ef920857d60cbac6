"""Who clients of Pulsar's door and of HTTP are: what the settings say, with the keys that they name."""

from collections.abc import Mapping

from magnetar.base.clock import Clock
from magnetar.base.errors import ConfigError
from magnetar.base.key_source import FILE_BYTES_MAX, read_key
from magnetar.base.settings_authentication import (
    BASIC,
    PASSWORDS,
    TLS,
    TOKEN,
    AuthenticationSettings,
    TokenSettings,
)
from magnetar.broker.security.authentication import Authentication, Method, by_certificate


def make_authentication(
    settings: AuthenticationSettings, clock: Clock, environment: Mapping[str, str]
) -> Authentication:
    """Raises ConfigError: a key cannot be used."""
    methods: dict[str, Method] = {}
    if settings.token is not None:
        methods[TOKEN] = _token_method(settings.token, clock, environment)
    if TLS in settings.methods:
        methods[TLS] = by_certificate
    if settings.passwords:
        methods[BASIC] = _password_method(settings.passwords, environment)
    return Authentication(methods, settings.anonymous_role, settings.proxy_roles)


def _token_method(settings: TokenSettings, clock: Clock, environment: Mapping[str, str]) -> Method:
    # A tenth of a second of imports, which only servers with tokens pay.
    from magnetar.broker.security.tokens import TokenValidator, public_key, secret_key, token_method

    data = read_key(settings.setting, settings.key, environment)
    try:
        key = public_key(data, settings.public_algorithm) if settings.public_algorithm else secret_key(data)
    except ConfigError as error:
        raise ConfigError(f"{settings.setting}: {error}") from None
    claims = settings.role_claim, settings.audience_claim, settings.audience
    return token_method(TokenValidator(key, clock, *claims))


def _password_method(given: str, environment: Mapping[str, str]) -> Method:
    # As above: what only servers with passwords pay.
    from magnetar.broker.security.passwords import parse_passwords, password_method

    data = read_key(PASSWORDS, given, environment, FILE_BYTES_MAX)
    try:
        return password_method(parse_passwords(data))
    except ConfigError as error:
        raise ConfigError(f"{PASSWORDS}: {error}") from None
