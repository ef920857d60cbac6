"""Settings of OpenID Connect, by Pulsar's own keys: which providers' tokens clients of Pulsar's door and of HTTP may
use."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.base.config import ConfigType
from magnetar.base.errors import ConfigError
from magnetar.base.server_key import ServerKey
from magnetar.base.settings_oauth import KeySetSettings, check_url
from magnetar.base.settings_tls import PEM, Given, Material

OPENID_PROVIDER: Final = "org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID"
DISCOVERY: Final = "/.well-known/openid-configuration"
RETRY_S: Final = 0.1  # as Kafka's for the keys of OAUTHBEARER; Pulsar asks when a client comes
RETRY_S_MAX: Final = 10.0
_ISSUERS: Final = "openIDAllowedTokenIssuers"
_AUDIENCES: Final = "openIDAllowedAudiences"
_HTTPS: Final = "openIDRequireIssuersUseHttps"
_TRUSTED: Final = "openIDTokenIssuerTrustCertsFilePath"
_LEEWAY: Final = "openIDAcceptedTimeLeewaySeconds"
_REFRESH: Final = "openIDCacheRefreshAfterWriteSeconds"
_CLAIM: Final = "openIDRoleClaim"

OPENID_KEYS: Final = (
    ServerKey(
        _ISSUERS,
        ConfigType.LIST,
        "",
        "The identity providers whose tokens are good, as `iss` has them: URLs, under which"
        f" {DISCOVERY} says where their keys are.",
    ),
    ServerKey(
        _AUDIENCES,
        ConfigType.LIST,
        "",
        "The names of this server in their tokens: `aud` must contain one of them.",
    ),
    ServerKey(_CLAIM, ConfigType.STRING, "sub", "The claim of such a token that contains the role."),
    ServerKey(
        _LEEWAY,
        ConfigType.INT,
        "0",
        "How much the clocks of server and provider may differ.",
        minimum=0,
        maximum=86_400,
    ),
    ServerKey(
        _TRUSTED,
        ConfigType.STRING,
        "",
        "The authorities that have signed the providers' certificates, as PEM; without it, those of the machine.",
    ),
    ServerKey(_HTTPS, ConfigType.BOOLEAN, "true", "Whether providers must be https://."),
    ServerKey(
        _REFRESH,
        ConfigType.INT,
        "64800",
        "How often the server reads their keys again; it does so sooner if a token names an unknown key.",
        minimum=1,
    ),
    ServerKey(
        "openIDFallbackDiscoveryMode",
        ConfigType.STRING,
        "DISABLED",
        "Other ways to find keys: there are none.",
        choices=("DISABLED",),
    ),
)


@dataclass(frozen=True, slots=True)
class OpenIdSettings:
    """`issuers` by their names, each with the settings of its keys."""

    issuers: tuple[tuple[str, KeySetSettings], ...]
    audiences: tuple[str, ...]
    role_claim: str
    leeway_ms: int


def openid(text: Callable[[str], str], words: Callable[[str], tuple[str, ...]]) -> OpenIdSettings:
    """Read the keys with `text` and `words`; the server accepts such tokens.

    Raises:
        ConfigError: they are incomplete, or name what is no URL of a provider.
    """
    issuers, audiences = words(_ISSUERS), words(_AUDIENCES)
    for name, found in ((_ISSUERS, issuers), (_AUDIENCES, audiences)):
        if not found:
            raise ConfigError(
                f"tokens of identity providers are to be taken, and none could be good: set {name}"
            )
    schemes = ("https",) if text(_HTTPS) == "true" else ("https", "http")
    file = text(_TRUSTED)
    trusted = Material(_TRUSTED, Path(file), kind=Given(PEM, "")) if file else None
    refresh_s = float(text(_REFRESH))
    return OpenIdSettings(
        tuple((one, _keys_of(one, schemes, refresh_s, trusted)) for one in dict.fromkeys(issuers)),
        audiences,
        text(_CLAIM).strip() or "sub",
        int(text(_LEEWAY)) * 1000,
    )


def _keys_of(
    issuer: str, schemes: tuple[str, ...], refresh_s: float, trusted: Material | None
) -> KeySetSettings:
    parts = check_url(_ISSUERS, issuer, schemes)
    url = issuer.removesuffix("/") + DISCOVERY
    trusted = trusted if parts.scheme == "https" else None
    return KeySetSettings(_ISSUERS, url, refresh_s, RETRY_S, RETRY_S_MAX, trusted, issuer)
