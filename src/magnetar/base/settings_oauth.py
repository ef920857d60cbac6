"""Settings of SASL's OAUTHBEARER, by Kafka's own keys: which tokens of an identity provider a listener accepts.

Without settings, Kafka accepts unsigned tokens.  Here an operator has to ask for that, by the class that accepts them
or by one of its options.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from magnetar.base.config import ConfigType, Value
from magnetar.base.errors import ConfigError
from magnetar.base.jaas import jaas_options
from magnetar.base.server_key import ServerKey
from magnetar.base.settings_tls import Given, Lookup, Material, trust_store

PREFIX: Final = "sasl.oauthbearer."
_URL: Final = f"{PREFIX}jwks.endpoint.url"
_JAAS: Final = "oauthbearer.sasl.jaas.config"
_HANDLER: Final = "oauthbearer.sasl.server.callback.handler.class"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_MODULE: Final = f"{_PACKAGE}OAuthBearerLoginModule"
_SIGNED: Final = (
    f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",
)
_UNSIGNED: Final = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_VALIDATORS: Final = (f"{_PACKAGE}DefaultJwtValidator", f"{_PACKAGE}BrokerJwtValidator")
_OPTION: Final = "unsecuredValidator"
_CLAIM_OPTION: Final = f"{_OPTION}PrincipalClaimName"
_SKEW_OPTION: Final = f"{_OPTION}AllowableClockSkewMs"
_SKEW_DIGITS_MAX: Final = 9
_SCHEMES: Final = ("https", "http", "file")


def _known_handler(value: Value) -> str | None:
    return None if value in ("", *_SIGNED, _UNSIGNED) else "cannot be a class of one's own: no Java runs here"


def _known_validator(value: Value) -> str | None:
    return None if value in ("", *_VALIDATORS) else "cannot be a class of one's own: no Java runs here"


OAUTH_KEYS: Final = (
    ServerKey(
        _URL,
        ConfigType.STRING,
        "",
        "Where the JWK Set is that has the keys of OAUTHBEARER's tokens: https://, http:// or file://.",
    ),
    ServerKey(
        f"{PREFIX}jwks.endpoint.refresh.ms",
        ConfigType.LONG,
        "3600000",
        "How often the server reads it again; it does so sooner if a token names an unknown key.",
        minimum=0,
    ),
    ServerKey(
        f"{PREFIX}jwks.endpoint.retry.backoff.ms",
        ConfigType.LONG,
        "100",
        "How soon the server reads it again after a failure; doubled with each failure.",
        minimum=0,
    ),
    ServerKey(
        f"{PREFIX}jwks.endpoint.retry.backoff.max.ms",
        ConfigType.LONG,
        "10000",
        "The longest time between two such attempts.",
        minimum=0,
    ),
    ServerKey(
        f"{PREFIX}expected.audience",
        ConfigType.LIST,
        "",
        "The names of this server in tokens: `aud` must contain one of them. If this is empty, a token "
        "must not have `aud`.",
    ),
    ServerKey(
        f"{PREFIX}expected.issuer",
        ConfigType.STRING,
        "",
        "The issuer of the tokens, as in `iss`; if this is empty, the server does not check it.",
    ),
    ServerKey(
        f"{PREFIX}clock.skew.seconds",
        ConfigType.INT,
        "30",
        "How much the clocks of server and issuer may differ.",
        minimum=0,
        maximum=86_400,
    ),
    ServerKey(f"{PREFIX}sub.claim.name", ConfigType.STRING, "sub", "The claim that contains the user."),
    ServerKey(
        f"{PREFIX}jwt.validator.class",
        ConfigType.STRING,
        "",
        "What looks at tokens; only Kafka's own classes can be set, and mean what is done anyway.",
        check=_known_validator,
    ),
    ServerKey(
        _JAAS,
        ConfigType.PASSWORD,
        "",
        f"`{_MODULE} required;`, which says nothing more. Of its options count `ssl.truststore.location`, `.type`,"
        " `.password` and `.certificates`, which say whose certificate the endpoint shows, and those of unsigned"
        f" tokens: `{_CLAIM_OPTION}` and `{_SKEW_OPTION}`.",
    ),
    ServerKey(
        _HANDLER,
        ConfigType.STRING,
        "",
        f"`{_SIGNED[0]}`, which is what is done anyway, or `{_UNSIGNED}`: then tokens are taken that nothing signs,"
        " and a client is who it says.  For tests.",
        check=_known_handler,
    ),
)


@dataclass(frozen=True, slots=True)
class KeySetSettings:
    """Where a JWK Set is, and how often it is read; `setting` is the name that `url` was set by.

    `trusted` are the authorities of its endpoint; without them those of the machine are.  With an `issuer`, `url` is
    that of its discovery document, which says where the set is (OpenID Connect Discovery 1.0).
    """

    setting: str
    url: str
    refresh_s: float
    retry_s: float
    retry_s_max: float
    trusted: Material | None = None
    issuer: str = ""


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Which tokens are valid; without `keys` unsigned ones.  An empty issuer is any."""

    listener: str
    keys: KeySetSettings | None
    audiences: tuple[str, ...]
    issuer: str
    subject_claim: str
    skew_ms: int


def kafka_oauth(listener: str, look_up: Lookup) -> OAuthSettings:
    """Read the settings of one listener that accepts OAUTHBEARER.

    Raises:
        ConfigError: they ask for what is not served, or are incomplete.
    """
    url, jaas = look_up(_URL), look_up(_JAAS)
    said = jaas_options(jaas.name, jaas.text, _MODULE) if jaas.text else {}
    options = _unsigned(jaas.name, said)
    asks_for_unsigned = look_up(_HANDLER).text == _UNSIGNED or bool(options)
    if asks_for_unsigned and url.text:
        raise ConfigError(
            f"listener {listener} takes tokens that are not signed, and {url.name} says what signs them: keep one"
        )
    if asks_for_unsigned:
        skew = options.get(_SKEW_OPTION, "0")
        claim = options.get(_CLAIM_OPTION, "").strip() or "sub"
        return OAuthSettings(listener, None, (), "", claim, _milliseconds(jaas.name, skew))
    if not url.text:
        raise ConfigError(
            f"listener {listener} takes OAUTHBEARER, and nothing says what signs the tokens: set {_URL} to a JWK Set"
        )
    return OAuthSettings(
        listener,
        _keys(url, look_up, trust_store(lambda key: Given(said.get(key, ""), f"{key} in {jaas.name}"))),
        tuple(one.strip() for one in look_up(f"{PREFIX}expected.audience").text.split(",") if one.strip()),
        look_up(f"{PREFIX}expected.issuer").text,
        look_up(f"{PREFIX}sub.claim.name").text.strip() or "sub",
        int(look_up(f"{PREFIX}clock.skew.seconds").text) * 1000,
    )


def check_url(setting: str, url: str, schemes: tuple[str, ...]) -> SplitResult:
    """Parse the URL that `setting` has.

    Raises:
        ConfigError: it is no URL, or has none of `schemes`.
    """
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in schemes and bool(parts.path if parts.scheme == "file" else parts.hostname)
        # No name and no password: they would end in a log.
        is_url = is_url and "@" not in parts.netloc and parts.port != 0
        is_url = is_url and all("!" <= char <= "~" for char in url)
    except ValueError:
        is_url = False
    if not is_url:
        forms = [f"{one}:///path" if one == "file" else f"{one}://" for one in schemes]
        raise ConfigError(f"{setting} must be a URL: {' or '.join(forms)}")
    return parts


def _keys(url: Given, look_up: Lookup, trusted: Material | None) -> KeySetSettings:
    parts = check_url(url.name, url.text, _SCHEMES)
    refresh, retry, retry_max = (
        int(look_up(f"{PREFIX}jwks.endpoint.{key}.ms").text) / 1000
        for key in ("refresh", "retry.backoff", "retry.backoff.max")
    )
    return KeySetSettings(
        url.name, url.text, refresh, retry, retry_max, trusted if parts.scheme == "https" else None
    )


def _unsigned(setting: str, said: dict[str, str]) -> dict[str, str]:
    """The options of unsigned tokens."""
    options = {name: value for name, value in said.items() if name.startswith(_OPTION)}
    for name in options:
        if name not in (_CLAIM_OPTION, _SKEW_OPTION):
            raise ConfigError(f"{setting} has {name[:100]}, which is not served")
    return options


def _milliseconds(setting: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _SKEW_DIGITS_MAX:
        raise ConfigError(f"{setting} has a {_SKEW_OPTION} that is no number of milliseconds")
    return int(text)
