"""A transaction that nobody ends: pulsar-admin begins none, and Pulsar's Python client has none."""

import socket
from urllib.parse import urlsplit

from magnetar.wire.pulsar.commands import frame_command, read_command
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandConnect, CommandNewTxn

TIMEOUT_S = 30.0
TRANSACTION_MS = 3_600_000
_LENGTH_BYTES = 4


def open_transaction(url: str) -> int:
    """The least significant bits of its id; the most significant ones are 0."""
    address = urlsplit(url)
    connect = CommandConnect(client_version="compat", protocol_version=21)
    new = CommandNewTxn(request_id=1, txn_ttl_seconds=TRANSACTION_MS, tc_id=0)
    with socket.create_connection((address.hostname, address.port or 0), TIMEOUT_S) as connection:
        for command in (
            BaseCommand(type=BaseCommand.CONNECT, connect=connect),
            BaseCommand(type=BaseCommand.NEW_TXN, newTxn=new),
        ):
            connection.sendall(frame_command(command))
        with connection.makefile("rb") as answers:
            while True:
                length = int.from_bytes(answers.read(_LENGTH_BYTES), "big")
                kind, answer, _ = read_command(memoryview(answers.read(length)))
                if kind == BaseCommand.NEW_TXN_RESPONSE:
                    return int(answer.txnid_least_bits)
