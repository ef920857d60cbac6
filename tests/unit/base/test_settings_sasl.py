"""What the keys of SASL come to, for each listener; and which of them are refused."""

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.masking import HIDDEN
from magnetar.base.settings import ServerSettings, load_settings

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LISTENER = ("listeners=SASL_PLAINTEXT://:9093", "sasl.enabled.mechanisms=PLAIN")
ALICE = f'plain.sasl.jaas.config={MODULE} user_alice="hunter2";'


def of(*assignments: str) -> ServerSettings:
    return load_settings(assignments=assignments)


def problem(*assignments: str) -> str:
    with pytest.raises(ConfigError) as said:
        of(*assignments)
    return str(said.value)


def test_nothing_of_it_by_default() -> None:
    assert of().network.sasl == {}


def test_users_of_all_listeners() -> None:
    sasl = of(*LISTENER, ALICE).network.sasl["SASL_PLAINTEXT"]
    assert sasl.mechanisms == ("PLAIN",)
    assert sasl.passwords == {"alice": "hunter2"}
    assert (sasl.token_bytes_max, sasl.failure_delay_s) == (524288, 0.1)


TOKENS = (
    "authenticationEnabled=true",
    "authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "tokenSecretKey=data:,hunter2",
)


def test_plain_needs_no_users_where_clients_may_show_tokens() -> None:
    assert of(*LISTENER, *TOKENS).network.sasl["SASL_PLAINTEXT"].passwords == {}
    both = of(*LISTENER, *TOKENS, ALICE).network.sasl["SASL_PLAINTEXT"]
    assert both.passwords == {"alice": "hunter2"}
    assert "has no users" in problem(*LISTENER, *TOKENS[1:])


def test_a_listener_has_its_own_before_those_of_all() -> None:
    network = of(
        "listeners=IN.SIDE://:1,OUT://:2",
        "listener.security.protocol.map=IN.SIDE:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        "sasl.server.max.receive.size=7",
        ALICE,
        f"listener.name.in.side.plain.sasl.jaas.config={MODULE} user_bob=b;",
        "listener.name.in.side.sasl.server.max.receive.size=9",
    ).network
    inside, outside = network.sasl["IN.SIDE"], network.sasl["OUT"]
    assert (inside.passwords, inside.token_bytes_max) == ({"bob": "b"}, 9)
    assert (outside.passwords, outside.token_bytes_max) == ({"alice": "hunter2"}, 7)


def test_sessions_end_by_mechanism_and_listener() -> None:
    both = (LISTENER[0], "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", ALICE)

    def session_s_max(*assignments: str) -> dict[str, float]:
        return dict(of(*both, *assignments).network.sasl["SASL_PLAINTEXT"].session_s_max)

    own = "listener.name.sasl_plaintext."
    assert session_s_max() == {}
    assert session_s_max("connections.max.reauth.ms=4000") == {"PLAIN": 4.0, "SCRAM-SHA-256": 4.0}
    assert session_s_max(f"{own}connections.max.reauth.ms=500") == {"PLAIN": 0.5, "SCRAM-SHA-256": 0.5}
    assert session_s_max(f"{own}plain.connections.max.reauth.ms=4000") == {"PLAIN": 4.0}
    mixed = "connections.max.reauth.ms=4000", "plain.connections.max.reauth.ms=0"
    assert session_s_max(*mixed) == {"SCRAM-SHA-256": 4.0}
    assert "must be at least 0" in problem(*both, "connections.max.reauth.ms=-1")


def test_certificates_of_clients_are_asked_for_beside_a_login_only_where_the_listener_says_so() -> None:
    common = (
        "listeners=SASL_SSL://:9093",
        "sasl.enabled.mechanisms=PLAIN",
        ALICE,
        "ssl.keystore.location=/k.pem",
        "ssl.truststore.location=/t.pem",
        "ssl.client.auth=required",
    )
    assert of(*common).network.tls["SASL_SSL"].client_certificates.value == "none"
    own = of(*common, "listener.name.sasl_ssl.ssl.client.auth=requested")
    assert own.network.tls["SASL_SSL"].client_certificates.value == "requested"


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        (LISTENER[:1], "nothing says how clients may log in"),
        ((LISTENER[0], "sasl.enabled.mechanisms=PLAIN,GSSAPI"), "has GSSAPI, which is not served"),
        (
            (*LISTENER, "listener.name.sasl_plaintext.sasl.enabled.mechanisms=CRAM-MD5"),
            "sasl.enabled.mechanisms of listener SASL_PLAINTEXT has CRAM-MD5",
        ),
        (LISTENER, "has no users: set listener.name.sasl_plaintext.plain.sasl.jaas.config"),
        ((*LISTENER, "plain.sasl.jaas.config=hunter2"), "plain.sasl.jaas.config must be a login module"),
        ((*LISTENER, "plain.sasl.jaas.config=x.Y required user_a=hunter2;"), "must be for org.apache.kafka"),
        ((*LISTENER, f"plain.sasl.jaas.config={MODULE} user_=hunter2;"), "without a name or a password"),
        ((*LISTENER, f'plain.sasl.jaas.config={MODULE} user_a="";'), "without a name or a password"),
        ((*LISTENER, ALICE, "sasl.server.callback.handler.class=x.Y"), "no Java runs here"),
        (
            (*LISTENER, ALICE, "listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class=x.Y"),
            "no Java runs here",
        ),
        ((*LISTENER, ALICE, "principal.builder.class=x.Y"), "no Java runs here"),
        ((*LISTENER, "listener.name.sasl_plaintext.plain.sasl.jaas.confg=hunter2"), "unknown key"),
    ],
)
def test_what_is_refused(assignments: tuple[str, ...], sentence: str) -> None:
    said = problem(*assignments)
    assert sentence in said
    assert "hunter2" not in said


def test_no_password_is_shown() -> None:
    settings = of(*LISTENER, ALICE, f"listener.name.sasl_plaintext.{ALICE}")
    assert settings.given["plain.sasl.jaas.config"].text == HIDDEN
    assert "hunter2" not in repr(settings)


def test_keys_of_a_server_without_sasl_have_no_effect_and_that_is_said() -> None:
    settings = of(
        "sasl.enabled.mechanisms=GSSAPI",
        "listener.name.plaintext.plain.sasl.jaas.config=x",
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config=x",
        "listener.name.plaintext.connections.max.idle.ms=5",
    )
    assert [notice.partition(" has no effect: ")[2] for notice in settings.notices] == [
        "credentials of SCRAM are made by clients, at run time",
        "it is the same for all listeners here",
        "no listener asks for SASL",
        "no listener PLAINTEXT asks for SASL",
    ]
