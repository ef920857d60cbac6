"""Every command that is served: the table from its type to its handler."""

from itertools import chain
from typing import Final

from magnetar.protocols.pulsar.handlers import (
    connect,
    consumer,
    lookup,
    producer,
    scalable,
    schema,
    seek,
    subscribe,
    topics,
    transactions,
)
from magnetar.protocols.pulsar.registry import Command
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

_FAMILIES: Final = (
    connect.COMMANDS,
    consumer.COMMANDS,
    lookup.COMMANDS,
    producer.COMMANDS,
    scalable.COMMANDS,
    schema.COMMANDS,
    seek.COMMANDS,
    subscribe.COMMANDS,
    topics.COMMANDS,
    transactions.COMMANDS,
)


def load_commands() -> "dict[BaseCommand.Type, Command]":
    """The handlers of all commands.  Raises AssertionError if two handlers serve one command."""
    commands: dict[BaseCommand.Type, Command] = {}
    for command in chain.from_iterable(_FAMILIES):
        assert command.kind not in commands, f"two handlers for {BaseCommand.Type.Name(command.kind)}"
        commands[command.kind] = command
    return commands
