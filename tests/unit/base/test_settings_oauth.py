"""What the keys of OAUTHBEARER come to, for each listener; and which of them are refused."""

from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.settings import load_settings
from magnetar.base.settings_oauth import KeySetSettings, OAuthSettings

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{PACKAGE}.OAuthBearerLoginModule required"
UNSIGNED = f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
LISTENER = (
    "listeners=IN://:9093",
    "listener.security.protocol.map=IN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=OAUTHBEARER",
)
URL = "sasl.oauthbearer.jwks.endpoint.url=https://idp.test/keys"


def oauth(*assignments: str) -> OAuthSettings | None:
    return load_settings(assignments=[*LISTENER, *assignments]).network.sasl["IN"].oauth


def test_an_endpoint_alone_with_kafkas_defaults() -> None:
    keys = KeySetSettings("sasl.oauthbearer.jwks.endpoint.url", "https://idp.test/keys", 3600.0, 0.1, 10.0)
    assert oauth(URL) == OAuthSettings("IN", keys, (), "", "sub", 30_000)


def test_all_that_is_set_arrives_as_a_kafka_broker_has_it() -> None:
    settings = oauth(
        f"listener.name.in.oauthbearer.sasl.jaas.config={MODULE};",
        f"listener.name.in.oauthbearer.sasl.server.callback.handler.class={PACKAGE}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url=file:///etc/keys.json",
        "sasl.oauthbearer.expected.issuer=https://issuer.test",
        "sasl.oauthbearer.expected.audience=one, two",
        "sasl.oauthbearer.clock.skew.seconds=0",
        "sasl.oauthbearer.sub.claim.name=client_id",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms=1000",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms=200",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms=3000",
        f"sasl.oauthbearer.jwt.validator.class={PACKAGE}.DefaultJwtValidator",
    )
    assert settings is not None
    assert settings.keys is not None
    assert (settings.keys.url, settings.keys.refresh_s) == ("file:///etc/keys.json", 1.0)
    assert (settings.keys.retry_s, settings.keys.retry_s_max) == (0.2, 3.0)
    assert (settings.issuer, settings.audiences) == ("https://issuer.test", ("one", "two"))
    assert (settings.subject_claim, settings.skew_ms) == ("client_id", 0)


def test_the_authorities_of_an_endpoint_stand_in_the_jaas_entry_as_in_kafka() -> None:
    store = (
        'ssl.truststore.type=PKCS12 ssl.truststore.location="/etc/idp.p12" ssl.truststore.password="hunter2"'
    )
    entry = f"listener.name.in.oauthbearer.sasl.jaas.config={MODULE} {store};"
    settings = oauth(URL, entry, "ssl.truststore.location=/not/this/one")
    assert settings is not None
    assert settings.keys is not None
    trusted = settings.keys.trusted
    assert trusted is not None
    assert (trusted.file, trusted.kind.text, trusted.password.text) == (
        Path("/etc/idp.p12"),
        "PKCS12",
        "hunter2",
    )
    assert trusted.setting == "ssl.truststore.location in oauthbearer.sasl.jaas.config of listener IN"
    assert "hunter2" not in repr(settings)
    in_a_file = oauth("sasl.oauthbearer.jwks.endpoint.url=file:///etc/keys.json", entry)
    assert in_a_file is not None
    assert in_a_file.keys is not None
    assert in_a_file.keys.trusted is None


@pytest.mark.parametrize("prefix", ["listener.name.in.", "listener.name.in.oauthbearer."])
def test_a_listener_has_its_own_also_by_the_name_of_the_mechanism(prefix: str) -> None:
    settings = oauth(URL, f"{prefix}sasl.oauthbearer.expected.audience=mine")
    assert settings is not None
    assert settings.audiences == ("mine",)


def test_unsigned_tokens_have_to_be_asked_for() -> None:
    assert oauth(f"oauthbearer.sasl.server.callback.handler.class={UNSIGNED}") == OAuthSettings(
        "IN", None, (), "", "sub", 0
    )
    options = 'unsecuredValidatorPrincipalClaimName="who" unsecuredValidatorAllowableClockSkewMs="3000"'
    asked = oauth(f"listener.name.in.oauthbearer.sasl.jaas.config={MODULE} {options};")
    assert asked == OAuthSettings("IN", None, (), "", "who", 3000)


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        ((), "nothing says what signs the tokens"),
        ((f"oauthbearer.sasl.jaas.config={MODULE};",), "nothing says what signs the tokens"),
        ((URL, f"oauthbearer.sasl.server.callback.handler.class={UNSIGNED}"), "keep one"),
        ((URL, "oauthbearer.sasl.server.callback.handler.class=x.Y"), "no Java runs here"),
        ((URL, "sasl.oauthbearer.jwt.validator.class=x.Y"), "no Java runs here"),
        ((URL, "oauthbearer.sasl.jaas.config=x.Y required;"), "must be for"),
        ((URL, "oauthbearer.sasl.jaas.config=hunter2"), "must be a login module"),
        ((f'oauthbearer.sasl.jaas.config={MODULE} unsecuredValidatorRequiredScope="a";',), "not served"),
        (
            (f'oauthbearer.sasl.jaas.config={MODULE} unsecuredValidatorAllowableClockSkewMs="-1";',),
            "no number",
        ),
        ((URL, "sasl.oauthbearer.clock.skew.seconds=-1"), "must be from 0 to 86400"),
        (
            (URL, f'oauthbearer.sasl.jaas.config={MODULE} ssl.truststore.type="x";'),
            "ssl.truststore.type in oauthbearer.sasl.jaas.config must be one of",
        ),
        *(
            ((f"sasl.oauthbearer.jwks.endpoint.url={url}",), "must be a URL")
            for url in (
                "keys.json",
                "ftp://a/b",
                "https://",
                "file://",
                "https://u:hunter2@a/b",
                "http://[/",
                "http://a/b c",
            )
        ),
    ],
)
def test_what_is_refused(assignments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigError) as said:
        oauth(*assignments)
    assert sentence in str(said.value)
    assert "hunter2" not in str(said.value)
