"""Which Pulsar commands this broker serves, and the shape of a handler.

One file under `handlers/` serves one family of commands.  It states::

    COMMANDS = (Command(BaseCommand.SEEK, seek), Command(BaseCommand.LOOKUP, lookup, refuse_lookup), ...)

    def seek(session: PulsarSession, command: CommandSeek) -> Answer: ...

A handler runs on the event loop in order of arrival (stage one: validate, take effect).  What it returns:

* a `BaseCommand`: the answer, sent with whatever else leaves in this turn of the loop;
* a coroutine, for work that has to wait: the session runs it to its end, even when the client has gone meanwhile, and
  sends what it returns; answers leave in whatever order they are ready (clients go by request_id);
* None: there is no answer, or it comes by a callback that calls `session.send`.

A `BrokerError` from a handler or its coroutine becomes the answer that `refuse` makes of it (by default an ERROR with
the command's request_id).  Any other exception is our bug: it is logged, and the connection closes.

SEND is apart: its handler takes the entry, too, `(session, command, entry, owned)`; `owned` says that the entry's
memory may be kept, otherwise it must be copied before the handler returns.
"""

import importlib
import pkgutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from magnetar.broker.errors import PolicyViolation
from magnetar.protocols.pulsar import handlers
from magnetar.protocols.pulsar.errors import refuse_request
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

Answer: TypeAlias = "BaseCommand | Coroutine[Any, Any, BaseCommand | None] | None"
# (command, error) -> the answer that says so; None when the protocol has none, which closes the connection.
Refusal: TypeAlias = Callable[[Any, Exception], BaseCommand | None]


# What a producer or consumer says of itself (names, properties) is kept as long as it is there.
DESCRIPTION_BYTES_MAX: Final = 64 << 10


def check_description(command: Any) -> None:
    """Refuse a PRODUCER or SUBSCRIBE that says more than is kept; its schema is looked at elsewhere.

    Raises:
        PolicyViolation: it does.
    """
    size = command.ByteSize() - len(command.schema.schema_data)
    if size > DESCRIPTION_BYTES_MAX:
        raise PolicyViolation(f"names and properties of {size} bytes; {DESCRIPTION_BYTES_MAX} are allowed")


@dataclass(frozen=True, slots=True)
class Command:
    """One served command."""

    kind: "BaseCommand.Type"
    handle: Callable[..., Answer]
    refuse: Refusal = refuse_request


def load_commands() -> "dict[BaseCommand.Type, Command]":
    """Import every handler and return the table from command type to `Command`."""
    commands: dict[BaseCommand.Type, Command] = {}
    for found in pkgutil.iter_modules(handlers.__path__):
        module = importlib.import_module(f"{handlers.__name__}.{found.name}")
        for command in getattr(module, "COMMANDS", ()):
            assert command.kind not in commands, f"two handlers for {BaseCommand.Type.Name(command.kind)}"
            commands[command.kind] = command
    return commands
