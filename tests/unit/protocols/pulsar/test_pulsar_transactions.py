"""Transactions are not available, and each of their commands says so in its own response."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.testing.pulsar import PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandEndTxnOnPartition,
    CommandEndTxnOnSubscription,
    CommandLookupTopic,
    CommandNewTxn,
    CommandPartitionedTopicMetadata,
    CommandTcClientConnectRequest,
    ServerError,
)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (CommandTcClientConnectRequest(request_id=7, tc_id=0), BaseCommand.TC_CLIENT_CONNECT_RESPONSE),
        (CommandNewTxn(request_id=7), BaseCommand.NEW_TXN_RESPONSE),
        (CommandAddPartitionToTxn(request_id=7), BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE),
        (CommandAddSubscriptionToTxn(request_id=7), BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE),
        (CommandEndTxn(request_id=7), BaseCommand.END_TXN_RESPONSE),
        (CommandEndTxnOnPartition(request_id=7), BaseCommand.END_TXN_ON_PARTITION_RESPONSE),
        (CommandEndTxnOnSubscription(request_id=7), BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE),
    ],
)
def test_each_command_is_refused_in_its_own_response(
    with_door: Callable[..., None], command: Any, answer: "BaseCommand.Type"
) -> None:
    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        refused = await client.ask(command, answer)
        assert (refused.request_id, refused.error) == (7, ServerError.NotAllowedError)
        assert refused.message == "Transactions are not available"
        assert not client.is_closed

    with_door(scenario)


@pytest.mark.parametrize("partition", ["", "-partition-3"])
def test_a_client_that_looks_for_the_coordinators_learns_that_there_are_no_transactions(
    with_door: Callable[..., None], partition: str
) -> None:
    """Java's client does so first, and said "Namespace not found"."""
    topic = f"persistent://pulsar/system/transaction_coordinator_assign{partition}"

    async def scenario(door: PulsarDoor) -> None:
        client = await door.connected()
        for command, answer in (
            (
                CommandPartitionedTopicMetadata(topic=topic, request_id=7),
                BaseCommand.PARTITIONED_METADATA_RESPONSE,
            ),
            (CommandLookupTopic(topic=topic, request_id=7), BaseCommand.LOOKUP_RESPONSE),
        ):
            refused = await client.ask(command, answer)
            assert (refused.request_id, refused.error) == (7, ServerError.NotAllowedError)
            assert "Transactions" in refused.message
        assert not client.is_closed

    with_door(scenario)
