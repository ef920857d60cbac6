"""A user of SCRAM who is deleted loses the connections that it has; Apache Kafka lets them continue."""

from collections.abc import Callable
from typing import Any

from magnetar.wire.kafka.messages import metadata
from magnetar.wire.kafka.messages.metadata import MetadataRequest
from tests.unit.protocols.kafka.test_delegation_token_logins import log_in
from tests.unit.protocols.kafka.test_scram_admin import alter, put

Run = Callable[..., None]


def test_connections_end_with_their_user_and_not_with_its_password(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await alter(client, [], [put("alice"), put("bob")])
        _, alices = await log_in(client, "alice", b"pw", b"")
        _, bobs = await log_in(client, "bob", b"pw", b"")
        await alter(client, [], [put("alice")])
        assert (await alices.ask(metadata, 12, MetadataRequest([]))).cluster_id
        await alter(client, [("alice", 2)], [])
        assert alices.peer.closed
        assert (await bobs.ask(metadata, 12, MetadataRequest([]))).cluster_id
        bobs.session.closed()

    with_broker(scenario)
