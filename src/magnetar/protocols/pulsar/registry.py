"""Which Pulsar commands this broker serves, and the shape of a handler.

One file under `handlers/` serves one family of commands, and `commands.py` lists all of them.  It states::

    COMMANDS = (Command(BaseCommand.SEEK, seek), Command(BaseCommand.LOOKUP, lookup, refuse_lookup), ...)

    def seek(session: PulsarSession, command: CommandSeek) -> Answer: ...

A handler runs on the event loop in order of arrival (stage one: validate, take effect).  It returns one of these:

* a `BaseCommand`: the answer, sent together with all other output of this turn of the loop;
* a coroutine, for work that has to wait.  The session runs it to its end, even if the client has gone meanwhile, and
  sends its result.  Answers leave in the order in which they are ready (clients match them by request_id);
* None: there is no answer, or a callback sends it by `session.send`.

`refuse` turns a `BrokerError` of a handler or its coroutine into the answer (by default an ERROR with the command's
request_id).  Any other exception is our bug: it is logged, and the connection closes.

The use case that the handler calls checks the client's rights.  A refusal names the missing right with the text of
Pulsar's broker: the command's `right`.

SEND is different: its handler also gets the entry, `(session, command, entry, owned)`.  `owned` means that the
entry's memory may be kept; otherwise the handler must copy it before it returns.
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
# (command, error) -> the answer with the error; None if the protocol has none, which closes the connection.
Refusal: TypeAlias = Callable[[Any, Exception], BaseCommand | None]


# Names and properties of a producer or consumer are kept as long as it exists.
DESCRIPTION_BYTES_MAX: Final = 64 << 10


def check_description(command: Any) -> None:
    """Refuse a PRODUCER or SUBSCRIBE whose names and properties are too large; schemas are checked elsewhere.

    Raises:
        PolicyViolation: they are too large.
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
        """The answer to a client whose command was refused; None if the protocol has none."""
        if isinstance(error, NotAuthorized):
            error = type(error)(f"Client is not authorized to {self.right}")
        return self.refuse(body, error)
