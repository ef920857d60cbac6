"""Pulsar's keys of authentication."""

from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.settings import ServerSettings, load_settings
from magnetar.base.settings_authentication import TokenSettings

PACKAGE = "org.apache.pulsar.broker.authentication."
ON = ("authenticationEnabled=true", f"authenticationProviders={PACKAGE}AuthenticationProviderToken")


def of(*assignments: str) -> ServerSettings:
    return load_settings(assignments=assignments)


def test_nothing_is_asked_of_clients_by_default() -> None:
    assert of().authentication is None


def test_secret_goes_before_a_public_key_and_is_never_shown() -> None:
    settings = of(*ON, "tokenSecretKey=c2VjcmV0", "tokenPublicKey=file:///key", "tokenPublicAlg=ES256")
    assert settings.authentication is not None
    assert settings.authentication.token == TokenSettings("tokenSecretKey", "c2VjcmV0", "", "sub", "", "")
    assert "c2VjcmV0" not in repr(settings)


def test_all_that_is_set_arrives() -> None:
    settings = of(
        *ON,
        "tokenPublicKey=file:///key",
        "tokenPublicAlg=RS512",
        "tokenAuthClaim=role",
        "tokenAudienceClaim=aud",
        "tokenAudience=here",
        "anonymousUserRole=nemo",
        "proxyRoles=a,b",
        "authenticateMetricsEndpoint=true",
        "authenticationRefreshCheckSeconds=2",
        "brokerClientAuthenticationParameters=token:secret",
    ).authentication
    assert settings is not None
    assert settings.methods == ("token",)
    assert settings.token == TokenSettings("tokenPublicKey", "file:///key", "RS512", "role", "aud", "here")
    assert (settings.anonymous_role, settings.proxy_roles) == ("nemo", frozenset("ab"))
    assert (settings.with_metrics, settings.refresh_check_s) == (True, 2)


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        (("authenticationEnabled=true",), "set authenticationProviders"),
        ((ON[0], "authenticationProviders=com.example.Mine"), "'com.example.Mine', which is not available"),
        ((ON[0], f"{ON[1]},x"), "'x', which is not available"),
        (ON, "set tokenSecretKey or tokenPublicKey"),
        ((*ON, "tokenSecretKey=x", "tokenAudience=here"), "go together"),
        ((*ON, "tokenSecretKey=x", "tokenAudienceClaim=aud"), "go together"),
        ((*ON, "tokenPublicKey=x", "tokenPublicAlg=HS256"), "must be one of RS256"),
        ((*ON, "tokenPublicKey=x", "tokenPublicAlg=none"), "must be one of RS256"),
        ((ON[0], f"authenticationProviders={PACKAGE}AuthenticationProviderBasic"), "set basicAuthConf"),
    ],
)
def test_what_is_incomplete_or_not_served_is_one_sentence(assignments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        of(*assignments)


def test_certificates_are_a_method_that_takes_a_port_with_tls() -> None:
    tls = ("authenticationEnabled=true", f"authenticationProviders={PACKAGE}AuthenticationProviderTls")
    port = ("brokerServicePortTls=6651", "tlsCertificateFilePath=/c.pem", "tlsKeyFilePath=/k.pem")
    trust = "tlsTrustCertsFilePath=/t.pem"
    stores = (port[0], "tlsEnabledWithKeyStore=true", "tlsKeyStore=/k")
    for more, lets_in in (
        ((), False),
        (port, False),
        ((*port, trust), True),
        ((*stores, trust), False),
        ((*stores, "tlsTrustStore=/t"), True),
    ):
        settings = of(*tls, *more)
        assert settings.authentication is not None
        assert settings.authentication.methods == ("tls",)
        assert settings.authentication.token is None
        said = [one for one in settings.notices if "AuthenticationProviderTls lets no client in" in one]
        assert bool(said) is not lets_in


def test_passwords_are_a_method_and_are_never_shown() -> None:
    basic = (
        ON[0],
        f"authenticationProviders={PACKAGE}AuthenticationProviderBasic",
        "basicAuthConf=data:,hunter2",
    )
    settings = of(*basic)
    assert settings.authentication is not None
    assert (settings.authentication.methods, settings.authentication.passwords) == (
        ("basic",),
        "data:,hunter2",
    )
    assert "hunter2" not in repr(settings)


OPENID = (ON[0], f"authenticationProviders={PACKAGE}oidc.AuthenticationProviderOpenID")
ISSUERS, AUDIENCES = "openIDAllowedTokenIssuers=https://a.test,http://b.test/", "openIDAllowedAudiences=x,y"


def test_issuers_of_tokens() -> None:
    found = of(
        *OPENID,
        ISSUERS,
        AUDIENCES,
        "openIDRequireIssuersUseHttps=false",
        "openIDRoleClaim=role",
        "openIDAcceptedTimeLeewaySeconds=3",
        "openIDCacheRefreshAfterWriteSeconds=60",
        "openIDTokenIssuerTrustCertsFilePath=/ca.pem",
        "openIDCacheSize=5",
    )
    assert found.authentication is not None
    openid = found.authentication.openid
    assert openid is not None
    assert (found.authentication.methods, found.authentication.token) == (("token",), None)
    assert (openid.audiences, openid.role_claim, openid.leeway_ms) == (("x", "y"), "role", 3000)
    known = "/.well-known/openid-configuration"
    assert [(name, keys.issuer, keys.url, keys.refresh_s) for name, keys in openid.issuers] == [
        ("https://a.test", "https://a.test", f"https://a.test{known}", 60.0),
        ("http://b.test/", "http://b.test/", f"http://b.test{known}", 60.0),
    ]
    trusted = [keys.trusted and keys.trusted.file for _, keys in openid.issuers]
    assert trusted == [Path("/ca.pem"), None]


def test_tokens_of_issuers_and_of_a_key_go_together() -> None:
    both = f"{ON[1]},{PACKAGE}oidc.AuthenticationProviderOpenID"
    settings = of(
        ON[0], both, "tokenSecretKey=x", "openIDAllowedTokenIssuers=https://a.test", AUDIENCES
    ).authentication
    assert settings is not None
    assert settings.methods == ("token",)
    assert settings.token is not None
    assert settings.openid is not None


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        ((), "set openIDAllowedTokenIssuers"),
        (("openIDAllowedTokenIssuers=https://a.test",), "set openIDAllowedAudiences"),
        ((ISSUERS, AUDIENCES), "openIDAllowedTokenIssuers must be a URL: https://$"),
        (("openIDAllowedTokenIssuers=https://u:p@a.test", AUDIENCES), "must be a URL"),
        (
            (ISSUERS, AUDIENCES, "openIDRequireIssuersUseHttps=false", "openIDFallbackDiscoveryMode=x"),
            "one of DISABLED",
        ),
    ],
)
def test_issuers_that_are_incomplete_or_no_urls(assignments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        of(*OPENID, *assignments)


def test_keys_without_authentication_have_no_effect() -> None:
    settings = of("tokenSecretKey=c2VjcmV0", "anonymousUserRole=nemo")
    assert len([one for one in settings.notices if "authenticationEnabled is not true" in one]) == 2
    assert "c2VjcmV0" not in repr(settings)
