"""Clients say who they are, before anything else.  What becomes of that is in the audit log.

Doors that know their clients by another way (SASL, a certificate alone) say here what came of it.
"""

from collections.abc import Collection
from dataclasses import replace

from magnetar.broker.security.audit import Audit
from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Caller, Credentials, Login


class LoginCases:
    """See the module's text.  Without `authentication` clients need not say anything, and none is asked to.

    `stranger` is the caller that a client is until it has logged in.
    """

    def __init__(self, authentication: Authentication | None, audit: Audit) -> None:
        self._authentication = authentication
        self._audit = audit

    @property
    def are_required(self) -> bool:
        return self._authentication is not None

    @property
    def methods(self) -> Collection[str]:
        return () if self._authentication is None else self._authentication.methods.keys()

    def log_in(
        self, stranger: Caller, credentials: Credentials, original_role: str = ""
    ) -> tuple[Login, Caller]:
        """The login, and the caller that the client is from now on.

        Raises:
            AuthenticationFailed, InvalidRoles
        """
        assert self._authentication is not None
        try:
            login = self._authentication.log_in(credentials, original_role)
        except AuthenticationFailed as error:
            self.failed(stranger, self._known(credentials.method), error)
            raise
        role = login.identity.role
        origin = stranger.origin
        if role != login.principal.name:
            origin = replace(origin, proxy=role)
        caller = Caller(login.principal, stranger.host, origin)
        self.succeeded(caller, login.method)
        return login, caller

    def renew(self, caller: Caller, login: Login, credentials: Credentials) -> Login:
        """Raises AuthenticationFailed."""
        assert self._authentication is not None
        try:
            renewed = self._authentication.renew(login, credentials)
        except AuthenticationFailed as error:
            self.failed(caller, self._known(credentials.method), error)
            raise
        self.succeeded(caller, login.method)
        return renewed

    def _known(self, method: str) -> str:
        """What a client calls its method, unless that is some other text."""
        return method if method in self.methods else ""

    def failed(self, stranger: Caller, method: str, error: AuthenticationFailed) -> None:
        """A client was not let in.  The error's texts have nothing that it has sent."""
        self._audit.login_refused(stranger, method, error.code, error.reason, error.user)

    def succeeded(self, caller: Caller, method: str) -> None:
        """A client was let in as `caller`."""
        self._audit.logged_in(caller, method)
