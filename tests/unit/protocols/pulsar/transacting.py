"""A client's transactions, as the tests of the Pulsar door say them."""

from typing import Any

from magnetar.testing.pulsar import PulsarClient
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandAddPartitionToTxn,
    CommandEndTxn,
    CommandNewTxn,
    MessageIdData,
    TxnAction,
)
from tests.unit.protocols.pulsar.pulsar_producing import TOPIC, entry, send

COMMIT, ABORT = TxnAction.COMMIT, TxnAction.ABORT


async def begin(client: PulsarClient, timeout_ms: int = 60_000) -> int:
    """The least significant bits of a new transaction's id."""
    command = CommandNewTxn(request_id=7, txn_ttl_seconds=timeout_ms, tc_id=0)
    answer = await client.ask(command, BaseCommand.NEW_TXN_RESPONSE)
    assert not answer.HasField("error"), answer
    assert (answer.request_id, answer.txnid_most_bits) == (7, 0)
    return int(answer.txnid_least_bits)


async def add_partition(client: PulsarClient, transaction: int, topic: str = TOPIC, most: int = 0) -> Any:
    command = CommandAddPartitionToTxn(
        request_id=8, txnid_least_bits=transaction, txnid_most_bits=most, partitions=[topic]
    )
    return await client.ask(command, BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE)


async def end(client: PulsarClient, transaction: int, action: "TxnAction", most: int = 0) -> Any:
    command = CommandEndTxn(
        request_id=9, txnid_least_bits=transaction, txnid_most_bits=most, txn_action=action
    )
    return await client.ask(command, BaseCommand.END_TXN_RESPONSE)


def write(client: PulsarClient, transaction: int, sequence_id: int, **fields: Any) -> None:
    """A message of the transaction, by producer 1."""
    bits: dict[str, Any] = {"txnid_least_bits": transaction, "txnid_most_bits": 0}
    send(client, sequence_id, entry(sequence_id, **bits, **fields), **bits)


async def acknowledge(
    client: PulsarClient, transaction: int, *ids: MessageIdData, cumulative: bool = False
) -> Any:
    """What consumer 1 is answered."""
    command = CommandAck(
        consumer_id=1,
        ack_type=CommandAck.Cumulative if cumulative else CommandAck.Individual,
        message_id=ids,
        txnid_least_bits=transaction,
        txnid_most_bits=0,
        request_id=11,
    )
    return await client.ask(command, BaseCommand.ACK_RESPONSE)
