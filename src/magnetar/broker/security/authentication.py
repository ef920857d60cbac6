"""Who a client is, by what it shows: one method for each configured provider.

The method that the client names decides, and no other is tried.  A client that names none and shows nothing has the
anonymous role, if there is one.  A client that shows something invalid is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from magnetar.broker.security.errors import AuthenticationFailed, InvalidRoles
from magnetar.broker.security.model import USER, Credentials, Identity, Login, Principal

# Decides without waiting and without I/O.  Raises AuthenticationFailed.
Method = Callable[[Credentials], Identity]

ANONYMOUS_METHOD: Final = "none"  # as Pulsar's clients call it when they have nothing to show


def by_certificate(credentials: Credentials) -> Identity:
    """The method of clients that show a certificate; it ignores whatever else they send."""
    if not credentials.certificate_name:
        raise AuthenticationFailed("it has shown no certificate with a name (CN)")
    return Identity(credentials.certificate_name)


def first_of(methods: Sequence[Method]) -> Method:
    """A method made of several, for clients that show the same kind of thing: the first one that accepts it decides."""

    def identify(credentials: Credentials) -> Identity:
        for method in methods[:-1]:
            with suppress(AuthenticationFailed):
                return method(credentials)
        return methods[-1](credentials)

    return identify


class Authentication:
    """`methods` are by name; `proxy_roles` may act for other clients."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        anonymous_role: str = "",
        proxy_roles: frozenset[str] = frozenset(),
    ) -> None:
        self.methods = methods
        self._anonymous_role = anonymous_role
        self._proxy_roles = proxy_roles

    @property
    def has_anonymous(self) -> bool:
        """Whether clients that show nothing may continue."""
        return bool(self._anonymous_role)

    def log_in(
        self, credentials: Credentials, original_role: str = "", *, may_be_itself: bool = False
    ) -> Login:
        """Log a client in, which may say that it acts for `original_role`; `may_be_itself`: also for its own role.

        Raises:
            AuthenticationFailed, InvalidRoles
        """
        identity = self._identify(credentials)
        role = identity.role
        if role in self._proxy_roles:
            if not original_role.strip() or original_role in self._proxy_roles:
                raise InvalidRoles("a proxy speaks for a client that is none")
            role = original_role
        elif original_role.strip() and not (may_be_itself and original_role == role):
            raise InvalidRoles("it speaks for another client, and is no proxy")
        return Login(Principal(USER, role), identity, credentials.method)

    def renew(self, login: Login, credentials: Credentials) -> Login:
        """Accept what a logged-in client shows anew: it must be the same client, by the same method.

        Raises:
            AuthenticationFailed
        """
        if credentials.method != login.method:
            raise AuthenticationFailed("it shows something of another kind than before")
        identity = self._identify(credentials)
        if identity.role != login.identity.role:
            raise AuthenticationFailed("it has another role than before")
        return Login(login.principal, identity, login.method)

    def _identify(self, credentials: Credentials) -> Identity:
        method = self.methods.get(credentials.method)
        if method is not None:
            return method(credentials)
        if credentials.method in ("", ANONYMOUS_METHOD) and not credentials.data:
            if self._anonymous_role:
                return Identity(self._anonymous_role)
            raise AuthenticationFailed("it shows nothing")
        raise AuthenticationFailed("it shows something of a kind that is not taken here")
