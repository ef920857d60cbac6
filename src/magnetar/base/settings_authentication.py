"""Settings of logins at Pulsar's door and over HTTP, by Pulsar's own keys."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.config import ConfigType
from magnetar.base.errors import ConfigError
from magnetar.base.server_key import ServerKey
from magnetar.base.settings_openid import OPENID_KEYS, OPENID_PROVIDER, OpenIdSettings, openid

_B, _S, _I, _LIST, _PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
_PACKAGE: Final = "org.apache.pulsar.broker.authentication."
TOKEN: Final = "token"  # noqa: S105 - the name of a method
TLS: Final = "tls"
BASIC: Final = "basic"
PASSWORDS: Final = "basicAuthConf"
# The name that clients use for the method of each of Pulsar's classes.
_TOKEN_PROVIDER: Final = f"{_PACKAGE}AuthenticationProviderToken"
PROVIDERS: Final = {
    _TOKEN_PROVIDER: TOKEN,
    f"{_PACKAGE}AuthenticationProviderTls": TLS,
    f"{_PACKAGE}AuthenticationProviderBasic": BASIC,
    OPENID_PROVIDER: TOKEN,
}

AUTHENTICATION_KEYS: Final = (
    ServerKey(
        "authenticationEnabled",
        _B,
        "false",
        "Whether clients of Pulsar's ports and of HTTP have to log in.",
    ),
    ServerKey(
        "authenticationProviders",
        _LIST,
        "",
        "In which ways they may, by Pulsar's classes: AuthenticationProviderToken, AuthenticationProviderTls,"
        f" AuthenticationProviderBasic, each with its package ({_PACKAGE[:-1]}), and"
        f" oidc.AuthenticationProviderOpenID in there.",
    ),
    ServerKey(
        "authenticationRefreshCheckSeconds",
        _I,
        "60",
        "How often the server checks whether tokens of connected Pulsar clients have expired.",
        minimum=1,
    ),
    ServerKey(
        "anonymousUserRole",
        _S,
        "",
        "The role of clients that show nothing; if this is empty, the server refuses them.",
    ),
    ServerKey(
        "proxyRoles",
        _LIST,
        "",
        "Roles of proxies, which act for the clients that they name; the proxy and the client both need the rights.",
    ),
    ServerKey(
        "authenticateMetricsEndpoint",
        _B,
        "false",
        "Whether clients of /metrics have to log in.",
    ),
    ServerKey(
        "tokenSecretKey",
        _PASSWORD,
        "",
        "The secret that signs tokens: file:///path, data:;base64,..., env:NAME, or base64.",
    ),
    ServerKey(
        "tokenPublicKey",
        _S,
        "",
        "The public key for tokens, in the same forms, if there is no tokenSecretKey.",
    ),
    ServerKey(
        "tokenPublicAlg",
        _S,
        "RS256",
        "The algorithm of that key; those of RSA take the other lengths of their family, too.",
        choices=("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"),
    ),
    ServerKey("tokenAuthClaim", _S, "sub", "The claim of a token that contains the role."),
    ServerKey(
        "tokenAudienceClaim", _S, "", "The claim of a token that must name this server, if this is set."
    ),
    ServerKey("tokenAudience", _S, "", "The name of this server in that claim; requires tokenAudienceClaim."),
    ServerKey(
        PASSWORDS,
        _PASSWORD,
        "",
        "The passwords of users, in the form of htpasswd (apr1 or crypt): file:///path, data:;base64,..., env:NAME, or"
        " base64; a file is read again when it changes.",
    ),
    *OPENID_KEYS,
)
AUTHENTICATION_NAMES: Final = frozenset(key.name for key in AUTHENTICATION_KEYS)


def takes_tokens(text: Callable[[str], str]) -> bool:
    """Whether clients may log in with tokens; `text` looks keys up."""
    providers = (one.strip() for one in text("authenticationProviders").split(","))
    return text("authenticationEnabled") == "true" and any(PROVIDERS.get(one) == TOKEN for one in providers)


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """`key` says where the key is, as `base/key_source.py` reads it; `setting` is the name by which it was set.

    `public_algorithm` is empty for a secret key.
    """

    setting: str
    key: str = field(repr=False)
    public_algorithm: str
    role_claim: str
    audience_claim: str
    audience: str


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    """`methods` have the names that clients use; tokens may be signed by `token`'s key, by `openid`'s issuers, or by
    either.

    `passwords` says where they are, as `base/key_source.py` reads it; it is empty if there are none.
    """

    methods: tuple[str, ...]
    refresh_check_s: int
    anonymous_role: str
    proxy_roles: frozenset[str]
    with_metrics: bool
    token: TokenSettings | None
    openid: OpenIdSettings | None
    passwords: str = field(repr=False)


def authentication(
    text: Callable[[str], str], words: Callable[[str], tuple[str, ...]]
) -> AuthenticationSettings:
    """Read the keys with `text` and `words`; authentication is on.

    Raises:
        ConfigError: they ask for something that the server does not have, or are incomplete.
    """
    providers = words("authenticationProviders")
    if not providers:
        raise ConfigError(
            "authenticationEnabled is true, and no client could log in: set authenticationProviders"
        )
    for one in providers:
        if one not in PROVIDERS:
            raise ConfigError(
                f"authenticationProviders has {one[:200]!r}, which is not available: there is"
                f" {' and '.join(PROVIDERS)}"
            )
    methods = tuple(dict.fromkeys(PROVIDERS[one] for one in providers))
    passwords = text(PASSWORDS) if BASIC in methods else ""
    if BASIC in methods and not passwords:
        raise ConfigError(f"passwords are to be taken, and nothing says where they are: set {PASSWORDS}")
    return AuthenticationSettings(
        methods=methods,
        refresh_check_s=int(text("authenticationRefreshCheckSeconds")),
        anonymous_role=text("anonymousUserRole").strip(),
        proxy_roles=frozenset(words("proxyRoles")),
        with_metrics=text("authenticateMetricsEndpoint") == "true",
        token=_token(text) if _TOKEN_PROVIDER in providers else None,
        openid=openid(text, words) if OPENID_PROVIDER in providers else None,
        passwords=passwords,
    )


def _token(text: Callable[[str], str]) -> TokenSettings:
    setting = next((name for name in ("tokenSecretKey", "tokenPublicKey") if text(name)), None)
    if setting is None:
        raise ConfigError(
            "tokens are to be taken, and there is no key for them: set tokenSecretKey or tokenPublicKey"
        )
    claim, audience = text("tokenAudienceClaim"), text("tokenAudience")
    if bool(claim) != bool(audience):
        raise ConfigError("tokenAudienceClaim and tokenAudience go together: set both or none")
    return TokenSettings(
        setting,
        text(setting),
        "" if setting == "tokenSecretKey" else text("tokenPublicAlg"),
        text("tokenAuthClaim"),
        claim,
        audience,
    )
