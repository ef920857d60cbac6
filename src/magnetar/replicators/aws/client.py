"""A client of a service of AWS, and what its errors mean for a replicator.  Imports boto3.

boto3 repeats no request by itself: it would send all of it again, and a producer here sends only what failed.  It reads
the files and variables of the worker's account only if the replicator writes with that account's own credentials.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from botocore.session import Session as CoreSession

from magnetar.replicators.aws.settings import ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, AwsTarget
from magnetar.replicators.errors import CredentialsRefused, TargetUnavailable

CONNECT_S: Final = 5
ANSWER_S: Final = 30
PAUSES_S: Final = (
    0.1,
    0.2,
    0.4,
    0.8,
    1.6,
    3.2,
)  # between attempts without progress, while a service throttles

# Codes about who writes; an error with any other code may be over in a moment.
_REFUSED: Final = frozenset(
    (
        "401",  # an answer that is not in the service's form has the status as its code
        "403",
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "KMSAccessDeniedException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "NotAuthorized",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    )
)
_REJECTED: Final = "ValidationException"
# Codes of what would have been taken later, and was not taken in part either.
_THROTTLED: Final = frozenset(
    (
        "InternalFailure",
        "InternalServerError",
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
    )
)
# Where botocore looks: (in a file, in a variable, what it has otherwise, how to convert that).
_NO_ACCOUNT: Final = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}


class Throttled(TargetUnavailable):
    """A service has taken nothing of a request, but may take it after a pause."""


class Rejected(TargetUnavailable):
    """A service has taken nothing of a request, because a part of it is not valid."""


class Patience:
    """Pauses between the requests of a chunk: they grow while nothing gets through, and have an end."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self._pauses = iter(PAUSES_S)

    def after(self, reason: str | None, *, got_through: bool) -> None:
        """Pause after a request of which a part failed, for `reason`; None: the service took all of it.

        Raises:
            TargetUnavailable: for the reason, after the last pause.
        """
        if got_through:
            self._pauses = iter(PAUSES_S)
        if reason is None:
            return
        pause_s = next(self._pauses, None)
        if pause_s is None:
            raise TargetUnavailable(reason)
        self._sleep(pause_s)


def open_client(target: AwsTarget) -> Any:
    """A client for one thread.  Raises CredentialsRefused: it has no credentials."""
    core = CoreSession(_NO_ACCOUNT if target.credentials else None)
    given = target.credentials
    session = Session(
        aws_access_key_id=given.get(ACCESS_KEY),
        aws_secret_access_key=given.get(SECRET_KEY),
        aws_session_token=given.get(SESSION_TOKEN),
        region_name=target.region,
        botocore_session=core,
    )
    config = Config(
        connect_timeout=CONNECT_S,
        read_timeout=ANSWER_S,
        retries={"total_max_attempts": 1, "mode": "standard"},
        ignore_configured_endpoint_urls=True,
    )
    return session.client(target.service, endpoint_url=target.endpoint, config=config)


@contextmanager
def judging(what: str) -> Iterator[None]:
    """For a call about `what`, a stream or a table.

    Raises:
        TargetUnavailable: or a subclass in this module.
        CredentialsRefused
    """
    try:
        yield
    except ClientError as error:
        told = error.response.get("Error", {})
        code, said = str(told.get("Code")), str(told.get("Message"))[:500]
        if code in _REFUSED:
            raise CredentialsRefused(f"AWS refuses who writes to {what}: {code}: {said}") from None
        kind = Rejected if code == _REJECTED else Throttled if code in _THROTTLED else TargetUnavailable
        raise kind(f"{what} does not take records: {code}: {said}") from None
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise CredentialsRefused(f"the worker has no credentials of its own for {what}: {error}") from None
    except BotoCoreError as error:  # no connection, no answer, or not the service
        raise TargetUnavailable(f"{what} does not answer: {error}") from None
