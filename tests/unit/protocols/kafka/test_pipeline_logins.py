"""A pipeline's query logs in by a token of its own, at every listener, and is its owner."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.job_token import MECHANISM
from magnetar.base.settings_sasl import SaslSettings
from magnetar.broker.jobs.model import OWNER_TOKEN_S
from magnetar.broker.security.model import Principal
from magnetar.wire.kafka.messages import api_versions, metadata
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest
from tests.unit.protocols.kafka.test_login import SETTINGS, Connection, Run, with_client

__all__ = ["with_client"]


async def token_of(client: Any, owner: str) -> str:
    """By what the query of a new pipeline of this owner logs in."""
    pipelines = client.broker.pipelines
    made = await pipelines.create("p", "table", {}, Principal("User", owner))
    epoch = await pipelines.take_lease("w", "here", 1, "here:/w")
    token: str = pipelines.tokens("w", epoch, [made.name])[made.name]
    return token


@pytest.mark.parametrize("settings", [SETTINGS, None])
def test_a_pipelines_query_is_its_owner_at_every_listener(
    with_client: Run, settings: SaslSettings | None
) -> None:
    async def scenario(client: Any) -> None:
        token = await token_of(client, "alice")
        one = Connection(client, settings)
        assert (await one.ask(api_versions, 0, ApiVersionsRequest())).error_code == 0
        shaken = await one.shake_hands(MECHANISM)
        assert MECHANISM not in shaken.mechanisms
        assert shaken.error_code == 0
        answer = await one.authenticate(token.encode())
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime_ms <= OWNER_TOKEN_S * 1000
        assert (await one.ask(metadata, 12, MetadataRequest([]))).cluster_id
        caller = one.session.caller
        assert (caller.principal, caller.pipeline, caller.by_token) == (Principal("User", "alice"), "p", True)
        assert caller.origin.proxy == "pipeline p"
        await client.broker.pipelines.delete("p", force=True)
        assert one.peer.closed, "as the owner of what has been deleted it may do nothing more"
        assert not client.service.logins._withdrawable

    with_client(scenario)


def test_a_request_is_the_last_one_when_the_lease_has_lapsed(with_client: Run) -> None:
    """Nothing reports that a lease lapses."""

    async def scenario(client: Any) -> None:
        one = Connection(client, SETTINGS)
        token = await token_of(client, "alice")
        await one.shake_hands(MECHANISM)
        assert (await one.authenticate(token.encode())).error_code == 0
        client.broker.pipelines.lease._ends_at = client.broker.clock.monotonic()
        assert not one.peer.closed
        assert await one.ask(metadata, 12, MetadataRequest([])) is None
        assert one.peer.closed

    with_client(scenario)


@pytest.mark.parametrize("settings", [SETTINGS, None])
@pytest.mark.parametrize(
    "change", [lambda token: token + "x", lambda token: "", lambda token: "\u00fc" + token]
)
def test_what_is_no_token_of_a_pipeline_lets_no_client_in(
    with_client: Run, settings: SaslSettings | None, change: Callable[[str], str]
) -> None:
    async def scenario(client: Any) -> None:
        token = await token_of(client, "alice")
        one = Connection(client, settings)
        await one.shake_hands(MECHANISM)
        answer = await one.authenticate(change(token).encode())
        assert answer is None or answer.error_code == 58
        assert one.principal.name == "ANONYMOUS"
        assert one.peer.closed

    with_client(scenario)


def test_a_listener_without_sasl_is_to_others_what_it_is(with_client: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Connection(client, None)
        assert (await one.shake_hands("PLAIN")).error_code == 34
        assert (
            await one.shake_hands(MECHANISM)
        ).error_code == 34  # which is the first of all requests or none
        assert (await one.ask(metadata, 12, MetadataRequest([]))).cluster_id
        other = Connection(client, None)
        assert (await other.ask(metadata, 12, MetadataRequest([]))).cluster_id
        assert (await other.shake_hands(MECHANISM)).error_code == 34
        broken = Connection(client, None)
        assert await broken.send(b"\0\0\0\x05\0\x11\0\1\0") == b""
        assert broken.peer.closed

    with_client(scenario)
