"""Logins at Kafka's door, from bytes to bytes: what is answered, what closes, and as whom a client goes on."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from magnetar.base.settings_connections import ConnectionRules
from magnetar.base.settings_sasl import SaslSettings
from magnetar.broker.security.model import Authenticated, Principal, Refused
from magnetar.broker.usecases.sasl import SaslLogins
from magnetar.protocols.door import LOGIN_S_MAX
from magnetar.protocols.kafka.apis import load_apis
from magnetar.protocols.kafka.login import LARGE_BYTES_MAX, VERSIONS_ASKED_MAX
from magnetar.protocols.kafka.session import KafkaSession
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.header import decode_response_header, encode_request_header
from magnetar.wire.kafka.messages import (
    api_versions,
    asking,
    metadata,
    produce,
    sasl_authenticate,
    sasl_handshake,
)
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest
from magnetar.wire.kafka.messages.produce import ProduceRequest
from magnetar.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from magnetar.wire.kafka.runtime import Buffer
from tests.unit.protocols.kafka.test_session import SilentPeer, feed, frame

Run = Callable[..., None]
RIGHT = b"\0alice\0alice-secret"
SETTINGS = SaslSettings(("PLAIN",), {"alice": "alice-secret"}, 524_288, 0.0)


class Connection:
    """A client of a listener with SASL, or without."""

    def __init__(self, client: Any, settings: SaslSettings | SaslLogins | None = SETTINGS) -> None:
        self.peer = SilentPeer()
        nodes = client.broker.nodes
        logins = client.service.cases.sasl.at(settings) if isinstance(settings, SaslSettings) else settings
        node = nodes.by_id[nodes.controller_id]
        unasked = client.service.cases.sasl.unasked() if logins is None else None
        self.session = KafkaSession(
            client.service, self.peer, node, "PLAINTEXT", 1, "127.0.0.1", "127.0.0.1", logins, unasked=unasked
        )

    async def send(self, data: bytes) -> bytes:
        """What it is answered, without its size."""
        self.peer.sent.clear()
        feed(self.session, data)
        for _ in range(100):
            if self.peer.sent or self.peer.closed:
                break
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        answer = b"".join(map(bytes, self.peer.sent))
        assert not answer or int.from_bytes(answer[:4], "big") == len(answer) - 4
        return answer

    async def ask(self, codec: Any, version: int, request: Any, answered: int | None = None) -> Any:
        """The answer, read as one of version `answered`; None if there is none."""
        answer = await self.send(frame(codec, version, request))
        if not answer:
            return None
        answered = version if answered is None else answered
        data = memoryview(answer)[4:]
        correlation, position = decode_response_header(data, codec.API_KEY, answered)
        assert correlation == 7
        return asking.load(codec.API_KEY).decode_response(answered, data, position)

    async def shake_hands(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return await self.ask(sasl_handshake, version, SaslHandshakeRequest(mechanism))

    async def authenticate(self, message: bytes, version: int = 2) -> Any:
        return await self.ask(sasl_authenticate, version, SaslAuthenticateRequest(message))

    @property
    def principal(self) -> Principal:
        return self.session._context.caller.principal


@pytest.fixture
def with_client(with_broker: Run) -> Callable[[Callable[[Any], Coroutine[Any, Any, None]]], None]:
    def run(scenario: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        async def checked(client: Any) -> None:
            await scenario(client)
            assert client.service.memory.used == 0
            assert client.service.logins._large == {}

        with_broker(checked)

    return run


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_goes_on_as_the_user_it_is(with_client: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        shaken = await one.shake_hands()
        assert (shaken.error_code, shaken.mechanisms) == (0, ["PLAIN"])
        answer = await one.authenticate(RIGHT, version)
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, None, b"")
        assert answer.session_lifetime_ms == 0
        assert one.principal == Principal("User", "alice")
        assert (await one.ask(metadata, 12, MetadataRequest([]))).cluster_id
        assert one.principal == Principal("User", "alice")
        # As real Kafka: it goes on after these.
        assert (await one.shake_hands()).error_code == 34
        assert (await one.authenticate(RIGHT)).error_code == 34
        assert not one.peer.closed
        one.session.closed()

    with_client(scenario)


@pytest.mark.parametrize("message", [b"\0alice\0wrong", b"\0mallory\0alice-secret", b"\0alice\0\xff"])
def test_a_wrong_password_and_an_unknown_user_are_told_the_same(with_client: Run, message: bytes) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        await one.shake_hands()
        answer = await one.authenticate(message)
        assert answer.error_code == 58
        assert answer.error_message == "Authentication failed: Invalid username or password"
        assert answer.auth_bytes == b""
        assert one.peer.closed
        assert client.service.logins.failed_count == 1

    with_client(scenario)


class InTwoSteps:
    """Refuses as OAUTHBEARER does."""

    def respond(self, message: bytes) -> Refused | Authenticated:
        assert message == b"shown", "the exchange is over"
        return Refused(b'{"status":"invalid_token"}', "its token is refused: it has expired")


@pytest.mark.parametrize("answer", [b"\x01", b"shown", b""])
def test_a_refusal_in_two_steps(with_client: Run, answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(client: Any) -> None:
        settings = SaslSettings(("OAUTHBEARER",), {}, 524_288, 0.0)
        one = Connection(client, SaslLogins({"OAUTHBEARER": InTwoSteps}, settings))
        await one.shake_hands("OAUTHBEARER")
        first = await one.authenticate(b"shown")
        assert (first.error_code, first.auth_bytes) == (0, b'{"status":"invalid_token"}')
        assert not one.peer.closed
        second = await one.authenticate(answer)
        assert (second.error_code, second.error_message) == (58, '{"status":"invalid_token"}')
        assert second.auth_bytes == b""
        assert one.peer.closed
        assert one.principal == Principal("User", "ANONYMOUS")
        assert client.service.logins.failed_count == 1

    with_client(scenario)
    assert "its token is refused: it has expired" in caplog.text


def test_a_mechanism_that_is_not_enabled(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        answer = await one.shake_hands("SCRAM-SHA-256")
        assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN"])
        assert one.peer.closed

    with_client(scenario)


def test_api_versions_before_the_handshake_in_any_version(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        for version in range(5):
            request = ApiVersionsRequest("test", "1")
            assert (await one.ask(api_versions, version, request)).error_code == 0
        parts: list[Buffer] = [encode_request_header(18, 127, 7, None)]
        body = b"".join(map(bytes, parts))
        answer = await one.send(len(body).to_bytes(4, "big") + body)
        assert answer[4:10] == b"\0\0\0\x07\0\x23"
        assert (await one.shake_hands()).error_code == 0
        assert (await one.authenticate(RIGHT)).error_code == 0
        one.session.closed()

    with_client(scenario)


def test_api_versions_may_not_be_asked_for_ever(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        for _ in range(VERSIONS_ASKED_MAX):
            assert await one.ask(api_versions, 0, ApiVersionsRequest())
        assert await one.ask(api_versions, 0, ApiVersionsRequest()) is None
        assert one.peer.closed

    with_client(scenario)


@pytest.mark.parametrize(
    ("codec", "version", "request_of_it"),
    [
        (metadata, 12, MetadataRequest([])),
        (produce, 9, ProduceRequest()),
        (sasl_authenticate, 2, SaslAuthenticateRequest(RIGHT)),
    ],
)
def test_a_request_before_the_handshake_closes_without_a_byte(
    with_client: Run, codec: Any, version: int, request_of_it: Any
) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        assert await one.ask(codec, version, request_of_it) is None
        assert one.peer.closed
        assert client.service.request_counts[codec.API_KEY] == 0

    with_client(scenario)


def test_a_request_is_not_even_read_before_the_login(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        for handshake in (False, True):
            one = Connection(client)
            if handshake:
                await one.shake_hands()
            # Metadata v12, whose body is none: reading it would be an error of another kind.
            nonsense = encode_request_header(3, 12, 7, None) + b"\xff" * 50
            answer = await one.send(len(nonsense).to_bytes(4, "big") + nonsense)
            assert bool(answer) is handshake
            assert one.peer.closed

    with_client(scenario)


def test_between_handshake_and_login_each_api_has_an_empty_answer_and_the_connection_ends(
    with_client: Run,
) -> None:
    async def scenario(client: Any) -> None:
        for api in load_apis().values():
            for version in range(api.min_version, api.max_version + 1):
                if api.key == sasl_authenticate.API_KEY:
                    continue
                one = Connection(client)
                await one.shake_hands()
                head = encode_request_header(api.key, version, 7, "test")
                answer = await one.send(len(head).to_bytes(4, "big") + head)
                data = memoryview(answer)[4:]
                _, position = decode_response_header(data, api.key, version)
                response = asking.load(api.key).decode_response(version, data, position)
                assert getattr(response, "error_code", 34) in (34, 0), (api.name, version)
                assert one.peer.closed, api.name

    with_client(scenario)


def test_handshake_v0_has_bare_messages(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        assert (await one.shake_hands(version=0)).error_code == 0
        assert await one.send(len(RIGHT).to_bytes(4, "big") + RIGHT) == b"\0\0\0\0"
        assert one.principal == Principal("User", "alice")
        assert (await one.ask(metadata, 12, MetadataRequest([]))).cluster_id
        one.session.closed()
        other = Connection(client)
        await other.shake_hands(version=0)
        wrong = b"\0alice\0wrong"
        assert await other.send(len(wrong).to_bytes(4, "big") + wrong) == b""
        assert other.peer.closed

    with_client(scenario)


def test_at_a_listener_without_sasl_it_is_the_wrong_state_and_the_connection_goes_on(
    with_client: Run,
) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client, None)
        assert (await one.shake_hands()).error_code == 34
        assert (await one.authenticate(RIGHT)).error_code == 34
        assert (await one.ask(metadata, 12, MetadataRequest([]))).cluster_id
        assert one.principal == Principal("User", "ANONYMOUS")
        one.session.closed()

    with_client(scenario)


@pytest.mark.parametrize("size", [524_289, -1, 0, 2**31 - 1])
def test_an_impossible_frame_closes_at_its_size(with_client: Run, size: int) -> None:
    async def scenario(client: Any) -> None:
        for handshake in (False, True):
            one = Connection(client)
            if handshake:
                await one.shake_hands()
            assert await one.send((size & 0xFFFFFFFF).to_bytes(4, "big")) == b""
            assert one.peer.closed

    with_client(scenario)


def test_before_the_handshake_only_small_frames_come(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        assert await one.send((100_000).to_bytes(4, "big")) == b""
        assert one.peer.closed
        # One that comes whole is not announced.
        other = Connection(client)
        body = encode_request_header(18, 0, 7, "x" * 20_000)
        assert await other.send(len(body).to_bytes(4, "big") + body) == b""
        assert other.peer.closed

    with_client(scenario)


def test_large_messages_of_logins_share_little_memory(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        size = SETTINGS.token_bytes_max
        many = [Connection(client) for _ in range(LARGE_BYTES_MAX // size + 1)]
        for one in many:
            await one.shake_hands()
            feed(one.session, size.to_bytes(4, "big"))
        assert [one.peer.closed for one in many] == [False] * (len(many) - 1) + [True]
        # A small one goes all the same.
        small = Connection(client)
        await small.shake_hands()
        assert (await small.authenticate(RIGHT)).error_code == 0
        for one in (*many, small):
            one.session.closed()

    with_client(scenario)


def test_a_client_that_is_known_may_send_large_requests(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        await one.shake_hands()
        await one.authenticate(RIGHT)
        feed(one.session, (5_000_000).to_bytes(4, "big"))
        assert not one.peer.closed
        one.session.closed()

    with_client(scenario)


def test_requests_behind_the_login_in_one_packet_are_handled_as_the_user(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        feed(
            one.session,
            frame(sasl_handshake, 1, SaslHandshakeRequest("PLAIN"))
            + frame(sasl_authenticate, 2, SaslAuthenticateRequest(RIGHT))
            + frame(metadata, 12, MetadataRequest([])),
        )
        await asyncio.sleep(0.01)
        assert len(one.peer.sent) == 3
        assert one.principal == Principal("User", "alice")
        one.session.closed()

    with_client(scenario)


def test_nothing_behind_a_login_that_failed_is_handled(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        feed(
            one.session,
            frame(sasl_handshake, 1, SaslHandshakeRequest("PLAIN"))
            + frame(sasl_authenticate, 2, SaslAuthenticateRequest(b"\0alice\0wrong"))
            + frame(sasl_authenticate, 2, SaslAuthenticateRequest(RIGHT))
            + frame(metadata, 12, MetadataRequest([])),
        )
        await asyncio.sleep(0.02)
        assert one.peer.closed
        assert len(one.peer.sent) == 2
        assert one.principal == Principal("User", "ANONYMOUS")
        assert client.service.request_counts[metadata.API_KEY] == 0

    with_client(scenario)


def test_a_login_has_only_so_much_time(with_client: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(client: Any) -> None:
        later: list[tuple[float, Callable[[], None]]] = []
        real = client.service.logins.clock.call_later

        def call_later(delay_s: float, callback: Any, *args: Any) -> Any:
            later.append((delay_s, callback))
            return real(delay_s, callback, *args)

        monkeypatch.setattr(client.service.logins.clock, "call_later", call_later)
        one = Connection(client)
        await one.shake_hands()
        ((delay_s, is_late),) = [item for item in later if item[0] == LOGIN_S_MAX]
        assert delay_s == LOGIN_S_MAX
        is_late()
        assert one.peer.closed

    with_client(scenario)


def test_no_password_is_in_the_log(with_client: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client)
        await one.shake_hands()
        await one.authenticate(b"\0alice\0hunter2-wrong")
        other = Connection(client)
        await other.shake_hands("hunter2-mechanism")

    with_client(scenario)
    assert "failed" in caplog.text
    assert "hunter2" not in caplog.text


def test_what_is_malformed_is_a_login_that_failed_and_cannot_fill_the_log(
    with_client: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(client: Any) -> None:
        for data in (bytes(4), b"\0\0\0\x0a" + b"\0\x11\0\1\0\0\0\7\xff\xff", b"\xff" * 4) * 5:
            one = Connection(client)
            assert await one.send(data) == b""
            assert one.peer.closed
        assert client.service.logins.failed_count == 15

    with_client(scenario)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


def test_logins_are_in_the_audit_log_without_what_was_typed_into_them(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        for message in (RIGHT, b"\0alice\0stolen", b"\0typed-password\0stolen", b"no PLAIN"):
            one = Connection(client)
            await one.shake_hands()
            await one.authenticate(message)
            one.session.closed()
        one = Connection(client)
        await one.shake_hands("GSSAPI")
        written = b"".join(client.audit.raw)
        assert not any(word in written for word in (b"typed", b"stolen", b"alice-secret"))
        lines = client.audit.take()
        assert [(line["result"], line.get("principal"), line.get("method")) for line in lines] == [
            ("accepted", "User:alice", "PLAIN"),
            ("refused", "User:alice", "PLAIN"),
            ("refused", None, "PLAIN"),
            ("refused", None, "PLAIN"),
            ("refused", None, None),
        ]
        for line in lines:
            assert (line["event"], line["host"]) == ("login", "127.0.0.1")
            assert (line["door"], line["listener"], line["client"]) == ("kafka", "PLAINTEXT", "test")
        assert [line.get("error") for line in lines] == [None, *["LOGIN_REFUSED"] * 4]

    with_client(scenario)


@pytest.mark.parametrize("version", [0, 1])
def test_a_user_with_as_many_connections_as_may_be_gets_no_other(with_client: Run, version: int) -> None:
    async def scenario(client: Any) -> None:
        client.broker.admission.govern(ConnectionRules(per_principal_max=1))
        first, second, third = (Connection(client) for _ in range(3))
        await first.shake_hands()
        assert (await first.authenticate(RIGHT)).error_code == 0
        await second.shake_hands(version=version)
        if version:
            answer = await second.authenticate(RIGHT)
            assert answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert answer.error_message == "User:alice has as many connections as it may have (1)"
        else:
            assert await second.send(len(RIGHT).to_bytes(4) + RIGHT) == b""
        assert second.peer.closed
        for one in (second, first, first):
            one.session.closed()
        await third.shake_hands()
        assert (await third.authenticate(RIGHT)).error_code == 0
        third.session.closed()
        assert not client.broker.admission._principal_counts
        assert not client.service.cases.logins._places

    with_client(scenario)


def test_a_login_anew_takes_no_other_place(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        client.broker.admission.govern(ConnectionRules(per_principal_max=1))
        one = Connection(client, replace(SETTINGS, session_s_max={"PLAIN": 60.0}))
        for _ in range(2):
            await one.shake_hands()
            assert (await one.authenticate(RIGHT)).error_code == 0
        one.session.closed()
        assert not client.broker.admission._principal_counts

    with_client(scenario)
