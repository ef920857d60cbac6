"""Errors: a client is not known, or a caller lacks a right, by the type of resource.  Each protocol has a code for each
of them.
"""

from typing import ClassVar, Self

from magnetar.base import error_codes
from magnetar.base.errors import BrokerError


class AuthenticationFailed(BrokerError):
    """A client did not show who it is.  The text is for the log, and has nothing that the client sent: clients do not
    learn what was wrong.  `user` is whom it wanted to be, if the server knows a user of that name.
    """

    code: ClassVar[str] = "AUTHENTICATION_FAILED"
    user: str = ""

    @property
    def reason(self) -> str:
        """What the log says of it."""
        return str(self)

    def of(self, user: str) -> Self:
        """The same error, of one that wanted to be `user`.  What raises it has no variable for it: see
        `base/errors.kept`.
        """
        self.user = user
        return self


class LoginRefused(AuthenticationFailed):
    """The same by SASL; the text is for the client, and does not say whether there is such a user.  `reason` is for
    the log, where that may say more.
    """

    code: ClassVar[str] = "LOGIN_REFUSED"

    def __init__(self, told: str, reason: str = "") -> None:
        super().__init__(told)
        self._reason = reason or told

    @property
    def reason(self) -> str:
        return self._reason


class InvalidRoles(AuthenticationFailed):
    """A client speaks for another one and is no proxy, or is a proxy and speaks for no client."""

    code: ClassVar[str] = "INVALID_ROLES"


class TooManyConnections(AuthenticationFailed):
    """The client has shown who it is, and has as many connections as it may have.  The text is for the client, too."""

    code: ClassVar[str] = "TOO_MANY_CONNECTIONS"


class NotAuthorized(BrokerError):
    """The caller has no right to do this to the resource, which may not even exist.  `operation` is an `Operation`."""

    code: ClassVar[str] = "NOT_AUTHORIZED"
    operation: int = 0


class ClusterNotAuthorized(NotAuthorized):
    """It would concern the whole cluster."""

    code: ClassVar[str] = "CLUSTER_NOT_AUTHORIZED"


class TenantNotAuthorized(NotAuthorized):
    """It would concern a tenant."""

    code: ClassVar[str] = "TENANT_NOT_AUTHORIZED"


class NamespaceNotAuthorized(NotAuthorized):
    """It would concern a namespace."""

    code: ClassVar[str] = "NAMESPACE_NOT_AUTHORIZED"


class TopicNotAuthorized(NotAuthorized):
    """It would concern a topic."""

    code: ClassVar[str] = error_codes.TOPIC_NOT_AUTHORIZED


class GroupNotAuthorized(NotAuthorized):
    """It would concern a group, or a subscription."""

    code: ClassVar[str] = "GROUP_NOT_AUTHORIZED"


class TransactionalIdNotAuthorized(NotAuthorized):
    """It would concern a transactional id."""

    code: ClassVar[str] = "TRANSACTIONAL_ID_NOT_AUTHORIZED"


class PipelineNotAuthorized(NotAuthorized):
    """It would concern a pipeline."""

    code: ClassVar[str] = "PIPELINE_NOT_AUTHORIZED"


class DelegationTokenNotAuthorized(NotAuthorized):
    """It would concern a delegation token, or the tokens of a user."""

    code: ClassVar[str] = "DELEGATION_TOKEN_NOT_AUTHORIZED"


class SecurityDisabled(BrokerError):
    """The server has no rules: authorization is off."""

    code: ClassVar[str] = "SECURITY_DISABLED"


class InvalidRule(BrokerError):
    """There can be no such rule, or no such filter of rules."""

    code: ClassVar[str] = "INVALID_RULE"


class DelegationTokensDisabled(BrokerError):
    """The server has no secret key to make delegation tokens from."""

    code: ClassVar[str] = "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenRequestNotAllowed(BrokerError):
    """The caller has not said who it is, or has said so by a delegation token."""

    code: ClassVar[str] = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenNotFound(BrokerError):
    """There is no delegation token of this HMAC."""

    code: ClassVar[str] = "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenExpired(BrokerError):
    """The delegation token has expired, and will be removed."""

    code: ClassVar[str] = "DELEGATION_TOKEN_EXPIRED"


class DelegationTokenOwnerMismatch(BrokerError):
    """The caller neither owns the delegation token nor may renew it."""

    code: ClassVar[str] = "DELEGATION_TOKEN_OWNER_MISMATCH"


class InvalidPrincipalType(BrokerError):
    """Only users own and renew delegation tokens."""

    code: ClassVar[str] = "INVALID_PRINCIPAL_TYPE"
