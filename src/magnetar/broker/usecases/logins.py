"""Logins: clients show who they are, before anything else.  The audit log gets the outcome.

A pipeline's query acts for the owner, by a token that the server made, and so does a function's process.  The server
accepts these tokens whether or not clients have to log in, so that neither ever acts as another principal.  It
withdraws a token when the pipeline or the process has ended (`broker/security/withdrawals.py`), and a delegation token
when a user expires it.  The doors then close the connections that showed the token.  They do the same with the
connections of a SCRAM user that is deleted.

Doors that identify their clients in another way (SASL, a certificate alone) report the outcome here.  Connections that
stay open take a place for their principal, whichever way it logged in.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from magnetar.base.job_token import FUNCTION, PIPELINE
from magnetar.broker.jobs.functions import Functions
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.quotas.admission import Admission
from magnetar.broker.security.audit import Audit
from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.delegation_tokens import DelegationTokens
from magnetar.broker.security.errors import AuthenticationFailed, TooManyConnections
from magnetar.broker.security.model import (
    USER,
    Authenticated,
    Caller,
    Credentials,
    Identity,
    Login,
    Principal,
)
from magnetar.broker.security.scram_credentials import ScramCredentials

WITHDRAWN: Final = (
    "its login counts no longer: its user was deleted, a user has expired its token, or nothing runs its pipeline or"
    " function"
)


class LoginCases:
    """See the module's text.  Without `authentication` clients need not log in.

    `stranger` is the caller that a client is before its login.
    """

    def __init__(
        self,
        authentication: Authentication | None,
        audit: Audit,
        pipelines: Pipelines,
        functions: Functions,
        delegation_tokens: DelegationTokens,
        scram: ScramCredentials,
        admission: Admission,
    ) -> None:
        self._admission = admission
        self._places: dict[object, Principal] = {}  # of the connections that have logged in
        self._authentication = authentication
        self._audit = audit
        self._withdrawals = [one.withdrawals for one in (pipelines, functions, delegation_tokens, scram)]
        self._jobs: Mapping[str, Callable[[bytes], Authenticated]] = {
            PIPELINE: partial(spoken_for, pipelines),
            FUNCTION: partial(_spoken_for_by_function, functions),
        }

    def hear_withdrawals(self, callback: Callable[[], None]) -> None:
        """Call this whenever a login may have stopped to count."""
        for withdrawals in self._withdrawals:
            withdrawals.hear(callback)

    @property
    def are_required(self) -> bool:
        return self._authentication is not None

    @property
    def methods(self) -> Collection[str]:
        return () if self._authentication is None else self._authentication.methods.keys()

    @property
    def has_anonymous(self) -> bool:
        """Whether clients that show nothing may continue."""
        return self._authentication is not None and self._authentication.has_anonymous

    def log_in(
        self,
        stranger: Caller,
        credentials: Credentials,
        original_role: str = "",
        *,
        may_be_itself: bool = False,
    ) -> tuple[Login, Caller]:
        """The login, and the caller that the client is from now on; see `Authentication.log_in`.

        Raises:
            AuthenticationFailed, InvalidRoles
        """
        if credentials.job:
            return self._log_in_job(stranger, credentials)
        assert self._authentication is not None
        try:
            login = self._authentication.log_in(credentials, original_role, may_be_itself=may_be_itself)
        except AuthenticationFailed as error:
            self.failed(stranger, self._known(credentials.method), error)
            raise
        role = login.identity.role
        origin, proxy = stranger.origin, None
        if role != login.principal.name:
            origin = replace(origin, proxy=role)
            proxy = Caller(Principal(USER, role), stranger.host, origin)
        caller = Caller(login.principal, stranger.host, origin, proxy=proxy)
        self.succeeded(caller, login.method)
        return login, caller

    def renew(self, caller: Caller, login: Login, credentials: Credentials) -> Login:
        """Raises AuthenticationFailed."""
        try:
            if login.method in self._jobs:
                renewed = self._renewed_job(caller, credentials)
            else:
                assert self._authentication is not None
                renewed = self._authentication.renew(login, credentials)
        except AuthenticationFailed as error:
            self.failed(caller, self._known(credentials.method), error)
            raise
        self.succeeded(caller, login.method)
        return renewed

    def _log_in_job(self, stranger: Caller, credentials: Credentials) -> tuple[Login, Caller]:
        try:
            authenticated = self._jobs[credentials.job](credentials.data)
        except AuthenticationFailed as error:
            self.failed(stranger, credentials.job, error)
            raise
        caller = stranger.logged_in(authenticated)
        self.succeeded(caller, credentials.job)
        return _login_of(authenticated, credentials.job), caller

    def _renewed_job(self, caller: Caller, credentials: Credentials) -> Login:
        if not credentials.job:
            raise AuthenticationFailed("it shows something of another kind than before")
        authenticated = self._jobs[credentials.job](credentials.data)
        renewed = caller.logged_in(authenticated)
        if (renewed, renewed.origin) != (caller, caller.origin):
            raise AuthenticationFailed("it shows the token of another pipeline or function than before")
        return _login_of(authenticated, credentials.job)

    def take_place(self, connection: object, stranger: Caller, principal: Principal, method: str) -> None:
        """Count a connection for the principal as which it logs in, until `give_place`.

        Raises:
            TooManyConnections
        """
        try:
            self._admission.take_place_for(principal)
        except TooManyConnections as error:
            self.failed(stranger, method, error)
            raise
        self._places[connection] = principal

    def give_place(self, connection: object) -> None:
        """The connection has ended, whether it had logged in or not."""
        principal = self._places.pop(connection, None)
        if principal is not None:
            self._admission.give_place_for(principal)

    def _known(self, method: str) -> str:
        """The name that a client gives its method, if that is a known one."""
        return method if method in self.methods else ""

    def failed(self, stranger: Caller, method: str, error: AuthenticationFailed) -> None:
        """A client's login was refused.  The error's texts contain nothing that the client sent."""
        self._audit.login_refused(stranger, method, error.code, error.reason, error.user)

    def succeeded(self, caller: Caller, method: str) -> None:
        """A client has logged in as `caller`."""
        self._audit.logged_in(caller, method)


def _login_of(authenticated: Authenticated, method: str) -> Login:
    role = authenticated.principal.name
    identity = Identity(role, ends_s=authenticated.ends_s, still_holds=authenticated.still_holds)
    return Login(authenticated.principal, identity, method)


def spoken_for(pipelines: Pipelines, token: bytes) -> Authenticated:
    """The principal for which a pipeline's token acts.  Raises AuthenticationFailed."""
    pipeline, epoch, ends_s = pipelines.speaking(token.decode("ascii", "replace"))
    return Authenticated(
        pipeline.owner,
        ends_s=ends_s,
        by_token=True,
        pipeline=pipeline.name,
        still_holds=partial(pipelines.is_run_by, pipeline, epoch),
    )


def _spoken_for_by_function(functions: Functions, token: bytes) -> Authenticated:
    function = functions.speaking(token)
    return Authenticated(
        function.owner,
        by_token=True,
        function=function.full_name,
        still_holds=partial(functions.is_let_in, token),
    )
