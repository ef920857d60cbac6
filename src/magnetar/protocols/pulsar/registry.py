"""Which Pulsar commands this broker serves, and the shape of a handler.

One file under `handlers/` serves one family of commands, and `commands.py` lists all of them.  It states::

    COMMANDS = (Command(BaseCommand.SEEK, seek), Command(BaseCommand.LOOKUP, lookup, refuse_lookup), ...)

    def seek(session: PulsarSession, command: CommandSeek) -> Answer: ...

A handler runs on the event loop in order of arrival (stage one: validate, take effect).  What it returns:

* a `BaseCommand`: the answer, sent with whatever else leaves in this turn of the loop;
* a coroutine, for work that has to wait: the session runs it to its end, even when the client has gone meanwhile, and
  sends what it returns; answers leave in whatever order they are ready (clients go by request_id);
* None: there is no answer, or it comes by a callback that calls `session.send`.

A `BrokerError` from a handler or its coroutine becomes the answer that `refuse` makes of it (by default an ERROR with
the command's request_id).  Any other exception is our bug: it is logged, and the connection closes.

The use case that the handler calls asks whether the client may.  A refusal says in the words of Pulsar's broker what
the client may not do: the command's `right`.

SEND is apart: its handler takes the entry, too, `(session, command, entry, owned)`; `owned` says that the entry's
memory may be kept, otherwise it must be copied before the handler returns.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import PolicyViolation
from magnetar.broker.security.errors import NotAuthorized
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
    right: str = ""

    def refused(self, body: Any, error: BrokerError) -> BaseCommand | None:
        """The answer to a client whose command was refused; None when the protocol has none."""
        if isinstance(error, NotAuthorized):
            error = type(error)(f"Client is not authorized to {self.right}")
        return self.refuse(body, error)
