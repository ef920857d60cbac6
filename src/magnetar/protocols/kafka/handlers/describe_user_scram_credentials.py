"""DescribeUserScramCredentials: which users have passwords for SCRAM, and by which mechanisms (KIP-554).

Served: v0.
"""

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.protocols.kafka.scram import NUMBERS, PROBLEMS
from magnetar.wire.kafka.messages import describe_user_scram_credentials as codec
from magnetar.wire.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

VERSIONS = (0, 0)


def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    # As in Kafka, an empty list means all users.
    users = [one.name for one in request.users] if request.users else None
    try:
        found = context.cases.scram.describe(context.caller, users)
    except BrokerError as error:
        return DescribeUserScramCredentialsResponse(error_code=error_code(error), error_message=str(error))
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            DescribeUserScramCredentialsResult(
                one.user,
                PROBLEMS[one.problem],
                one.text or None,
                [CredentialInfo(NUMBERS[mechanism], iterations) for mechanism, iterations in one.credentials],
            )
            for one in found
        ],
    )


API = Api.of(codec, VERSIONS, handle)
