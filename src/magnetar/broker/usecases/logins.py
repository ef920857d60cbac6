"""Logins: clients show who they are, before anything else.  The audit log gets the outcome.

A pipeline's query acts for the owner, by a token that the server made, and so does a function's process.  The server
accepts these tokens whether or not clients have to log in, so that neither ever acts as another principal.

Doors that identify their clients in another way (SASL, a certificate alone) report the outcome here.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Final

from magnetar.broker.jobs.functions import TOKEN_PREFIX, Functions
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.security.audit import Audit
from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import (
    USER,
    Authenticated,
    Caller,
    Credentials,
    Identity,
    Login,
    Principal,
)

PIPELINE_METHOD: Final = "pipeline"  # in the audit log
FUNCTION_METHOD: Final = "function"


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
    ) -> None:
        self._authentication = authentication
        self._audit = audit
        self._pipelines = pipelines
        self._functions = functions

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
        if credentials.is_of_pipeline:
            return self._log_in_pipeline(stranger, credentials)
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
            if login.method == PIPELINE_METHOD:
                renewed = self._renewed_pipeline(caller, credentials)
            else:
                assert self._authentication is not None
                renewed = self._authentication.renew(login, credentials)
        except AuthenticationFailed as error:
            self.failed(caller, self._known(credentials.method), error)
            raise
        self.succeeded(caller, login.method)
        return renewed

    def _log_in_pipeline(self, stranger: Caller, credentials: Credentials) -> tuple[Login, Caller]:
        caller, authenticated = self._as_pipeline(stranger, _text(credentials))
        return _login_of(authenticated), caller

    def _renewed_pipeline(self, caller: Caller, credentials: Credentials) -> Login:
        authenticated = spoken_for(self._pipelines, _text(credentials))
        if (authenticated.principal, authenticated.pipeline) != (caller.principal, caller.pipeline):
            raise AuthenticationFailed("it shows the token of another pipeline than before")
        return _login_of(authenticated)

    def as_pipeline(self, stranger: Caller, token: str) -> Caller:
        """The caller that a pipeline's query is.  Raises AuthenticationFailed."""
        return self._as_pipeline(stranger, token)[0]

    def _as_pipeline(self, stranger: Caller, token: str) -> tuple[Caller, Authenticated]:
        try:
            authenticated = spoken_for(self._pipelines, token)
        except AuthenticationFailed as error:
            self.failed(stranger, PIPELINE_METHOD, error)
            raise
        caller = stranger.logged_in(authenticated)
        self.succeeded(caller, PIPELINE_METHOD)
        return caller, authenticated

    @staticmethod
    def is_of_function(shown: bytes) -> bool:
        """Whether a client shows what only a function's process has."""
        return shown.startswith(TOKEN_PREFIX)

    def as_function(self, stranger: Caller, token: bytes) -> Caller:
        """The caller that a function's process is: its owner.  Raises AuthenticationFailed."""
        try:
            function = self._functions.speaking(token)
        except AuthenticationFailed as error:
            self.failed(stranger, FUNCTION_METHOD, error)
            raise
        origin = replace(stranger.origin, proxy=f"function {function.full_name}")
        caller = Caller(function.owner, stranger.host, origin, by_token=True)
        self.succeeded(caller, FUNCTION_METHOD)
        return caller

    def _known(self, method: str) -> str:
        """The name that a client gives its method, if that is a known one."""
        return method if method in self.methods else ""

    def failed(self, stranger: Caller, method: str, error: AuthenticationFailed) -> None:
        """A client's login was refused.  The error's texts contain nothing that the client sent."""
        self._audit.login_refused(stranger, method, error.code, error.reason, error.user)

    def succeeded(self, caller: Caller, method: str) -> None:
        """A client has logged in as `caller`."""
        self._audit.logged_in(caller, method)


def _text(credentials: Credentials) -> str:
    return credentials.data.decode("ascii", "replace")


def _login_of(authenticated: Authenticated) -> Login:
    role = authenticated.principal.name
    identity = Identity(role, ends_s=authenticated.ends_s, still_holds=authenticated.still_holds)
    return Login(authenticated.principal, identity, PIPELINE_METHOD)


def spoken_for(pipelines: Pipelines, token: str) -> Authenticated:
    """The principal for which a pipeline's token acts.  Raises AuthenticationFailed."""
    pipeline, epoch, ends_s = pipelines.speaking(token)
    return Authenticated(
        pipeline.owner,
        ends_s=ends_s,
        by_token=True,
        pipeline=pipeline.name,
        still_holds=partial(pipelines.is_run_by, pipeline, epoch),
    )
