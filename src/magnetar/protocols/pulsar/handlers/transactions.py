"""The commands of transactions, which are not available: each is refused in its own response.

A client that does without transactions never sends them; one that is configured to use them learns at once that it
cannot.
"""

from typing import Any, Final

from magnetar.broker.errors import PolicyViolation
from magnetar.protocols.pulsar.errors import server_error
from magnetar.protocols.pulsar.registry import Answer, Command, Refusal
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

# Command, response, and the response's field in BaseCommand.
_COMMANDS: Final = (
    (
        BaseCommand.TC_CLIENT_CONNECT_REQUEST,
        BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
        "tcClientConnectResponse",
    ),
    (BaseCommand.NEW_TXN, BaseCommand.NEW_TXN_RESPONSE, "newTxnResponse"),
    (
        BaseCommand.ADD_PARTITION_TO_TXN,
        BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
        "addPartitionToTxnResponse",
    ),
    (
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        "addSubscriptionToTxnResponse",
    ),
    (BaseCommand.END_TXN, BaseCommand.END_TXN_RESPONSE, "endTxnResponse"),
    (
        BaseCommand.END_TXN_ON_PARTITION,
        BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
        "endTxnOnPartitionResponse",
    ),
    (
        BaseCommand.END_TXN_ON_SUBSCRIPTION,
        BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        "endTxnOnSubscriptionResponse",
    ),
)


def _refuse(session: PulsarSession, command: Any) -> Answer:
    raise PolicyViolation("Transactions are not available")


def _refusal(kind: BaseCommand.Type, field: str) -> Refusal:
    def refuse(command: Any, error: Exception) -> BaseCommand:
        answer = BaseCommand(type=kind)
        response = getattr(answer, field)
        response.request_id = command.request_id
        response.error = server_error(error)
        response.message = str(error)
        return answer

    return refuse


COMMANDS = tuple(Command(kind, _refuse, _refusal(answer, field)) for kind, answer, field in _COMMANDS)
