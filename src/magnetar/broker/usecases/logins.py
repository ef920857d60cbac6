"""Clients say who they are, before anything else."""

from collections.abc import Collection

from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.model import Credentials, Login


class LoginCases:
    """See the module's text.  Without `authentication` clients need not say anything, and none is asked to."""

    def __init__(self, authentication: Authentication | None) -> None:
        self._authentication = authentication

    @property
    def are_required(self) -> bool:
        return self._authentication is not None

    @property
    def methods(self) -> Collection[str]:
        return () if self._authentication is None else self._authentication.methods.keys()

    def log_in(self, credentials: Credentials, original_role: str = "") -> Login:
        """Raises AuthenticationFailed, InvalidRoles."""
        assert self._authentication is not None
        return self._authentication.log_in(credentials, original_role)

    def renew(self, login: Login, credentials: Credentials) -> Login:
        """Raises AuthenticationFailed."""
        assert self._authentication is not None
        return self._authentication.renew(login, credentials)
