"""Logins at Kafka's listeners: use cases before a client has a name.  They require no right, because there is no
caller yet.

Every listener also accepts queries of pipelines, by a mechanism that no listener offers: whatever these write, they
write as their owners.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from magnetar.base.job_token import MECHANISM, TOKEN_BYTES_MAX
from magnetar.base.settings_authentication import TOKEN
from magnetar.base.settings_oauth import OAuthSettings
from magnetar.base.settings_sasl import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, SaslSettings
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.security.authentication import Authentication
from magnetar.broker.security.delegation_tokens import DelegationTokens
from magnetar.broker.security.model import Authenticated, Credentials, Exchange, Login
from magnetar.broker.security.plain import PlainUsers
from magnetar.broker.security.scram import ScramExchange
from magnetar.broker.security.scram_credentials import ALGORITHMS, ScramCredentials
from magnetar.broker.usecases.logins import spoken_for

# Of listeners that ask for no login.
_UNASKED: Final = SaslSettings((), {}, token_bytes_max=TOKEN_BYTES_MAX, failure_delay_s=0.1)


class PipelineLogin:
    """The login of a pipeline's query: its one message is the token."""

    def __init__(self, pipelines: Pipelines) -> None:
        self._pipelines = pipelines

    def respond(self, message: bytes) -> Authenticated:
        """See `Exchange`."""
        return spoken_for(self._pipelines, message)


class SaslLogins:
    """How clients log in at one listener; `mechanisms` are in the order of the settings."""

    def __init__(self, begin: Mapping[str, Callable[[], Exchange]], settings: SaslSettings) -> None:
        self.mechanisms = settings.mechanisms
        self.token_bytes_max = settings.token_bytes_max
        self.failure_delay_s = settings.failure_delay_s
        self.session_s_max = settings.session_s_max
        self._begin = begin

    def begin(self, mechanism: str) -> Exchange | None:
        """Begin a login by a mechanism; None if this listener does not accept it."""
        begin = self._begin.get(mechanism)
        return None if begin is None else begin()


# What begins a login by OAUTHBEARER at a listener with these settings.
BearerOf = Callable[[OAuthSettings], Callable[[], Exchange]]


class SaslCases:
    """`authentication` is that of Pulsar's door and of HTTP: PLAIN accepts the tokens that these accept."""

    def __init__(
        self,
        scram: ScramCredentials,
        delegation_tokens: DelegationTokens,
        pipelines: Pipelines,
        authentication: Authentication | None = None,
        bearer_of: BearerOf | None = None,
    ) -> None:
        self._scram = scram
        self._delegation_tokens = delegation_tokens
        self._pipelines = pipelines
        self._authentication = authentication
        self._bearer_of = bearer_of

    def at(self, settings: SaslSettings) -> SaslLogins:
        """The logins of a listener with these settings."""
        begin: dict[str, Callable[[], Exchange]] = {
            PLAIN: PlainUsers(settings.passwords, self._by_token()).begin,
            SCRAM_SHA_256: partial(self._begin_scram, SCRAM_SHA_256),
            SCRAM_SHA_512: partial(self._begin_scram, SCRAM_SHA_512),
        }
        if settings.oauth is not None:
            assert self._bearer_of is not None, "the server prepares what its listeners take"
            begin[OAUTHBEARER] = self._bearer_of(settings.oauth)
        taken = {name: begin[name] for name in settings.mechanisms}
        return SaslLogins({**taken, MECHANISM: self._begin_pipeline}, settings)

    def unasked(self) -> SaslLogins:
        """The logins of a listener that requires none."""
        return SaslLogins({MECHANISM: self._begin_pipeline}, _UNASKED)

    def _begin_pipeline(self) -> PipelineLogin:
        return PipelineLogin(self._pipelines)

    def _begin_scram(self, mechanism: str) -> ScramExchange:
        users, tokens = self._scram.book(mechanism), self._delegation_tokens.book(mechanism)
        return ScramExchange(ALGORITHMS[mechanism], users, tokens)

    def _by_token(self) -> Callable[[bytes], Login] | None:
        authentication = self._authentication
        if authentication is None or TOKEN not in authentication.methods:
            return None
        return lambda token: authentication.log_in(Credentials(TOKEN, token))
