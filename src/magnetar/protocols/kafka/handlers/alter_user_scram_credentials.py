"""AlterUserScramCredentials: create, change and delete passwords of SCRAM's users (KIP-554).

Served: v0.  The client sends the salted password and never the password; what the server stores is not enough to log
in.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.usecases.scram import ScramUpsertion
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.protocols.kafka.scram import MECHANISMS, PROBLEMS
from magnetar.wire.kafka.messages import alter_user_scram_credentials as codec
from magnetar.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

VERSIONS = (0, 0)


async def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    deletions = [(MECHANISMS.get(one.mechanism, ""), one.name) for one in request.deletions]
    upsertions = [
        ScramUpsertion(
            one.name, MECHANISMS.get(one.mechanism, ""), one.iterations, one.salt, one.salted_password
        )
        for one in request.upsertions
    ]
    try:
        done = await context.cases.scram.alter(context.caller, deletions, upsertions)
    except BrokerError as error:
        users = dict.fromkeys([*(user for _, user in deletions), *(one.user for one in upsertions)])
        results = [AlterUserScramCredentialsResult(user, error_code(error), str(error)) for user in users]
    else:
        results = [
            AlterUserScramCredentialsResult(one.user, PROBLEMS[one.problem], one.text or None) for one in done
        ]
    return AlterUserScramCredentialsResponse(results=results)


API: Final = Api.of(codec, VERSIONS, handle)
