"""CONNECT, PING, PONG, AUTH_RESPONSE: the connection itself.

If clients have to log in, CONNECT checks that before it looks at anything else; a refused client gets no reason.
When a client's token expires, the server asks for a new one by AUTH_CHALLENGE (`session.py`), and the client answers
with AUTH_RESPONSE, which it may also send by itself.  If clients need not log in, the server accepts any credentials,
as a Pulsar broker without authentication does.  Only the tokens of pipelines and of functions' processes always count:
the client acts for the owner, or is refused.  The server closes the connection when it withdraws the token.
"""

from magnetar.broker.security.errors import AuthenticationFailed, InvalidRoles, TooManyConnections
from magnetar.broker.security.model import Credentials
from magnetar.protocols.pulsar.registry import Answer, Command
from magnetar.protocols.pulsar.session import PulsarSession
from magnetar.wire.pulsar.commands import PROTOCOL_VERSION
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandConnected,
    CommandPing,
    CommandPong,
    FeatureFlags,
    ServerError,
)

_REFUSED = "Failed to authenticate"
_PONG = BaseCommand(type=BaseCommand.PONG, pong=CommandPong())


def connect(session: PulsarSession, command: CommandConnect) -> Answer:
    session.is_called(command.client_version)
    logins = session.cases.logins
    shown = session.credentials(command.auth_method_name, command.auth_data)
    # A pipeline or a function must never count as another client: its token is checked even if clients need not log in.
    if (logins.are_required or shown.job) and not _is_let_in(session, command, shown):
        return None
    session.client_version = command.client_version
    session.protocol_version = min(PROTOCOL_VERSION, command.protocol_version)
    session.features.CopyFrom(command.feature_flags)
    session.connected()
    return BaseCommand(
        type=BaseCommand.CONNECTED,
        connected=CommandConnected(
            server_version=session.service.server_version,
            protocol_version=session.protocol_version,
            max_message_size=session.service.settings.message_bytes_max,
            feature_flags=FeatureFlags(
                supports_topic_watchers=BaseCommand.WATCH_TOPIC_LIST in session.service.commands,
                supports_get_partitioned_metadata_without_auto_creation=True,
                supports_scalable_topics=BaseCommand.SCALABLE_TOPIC_LOOKUP in session.service.commands,
                supports_tc_metadata_discovery=BaseCommand.WATCH_TC_ASSIGNMENTS in session.service.commands,
            ),
        ),
    )


def _is_let_in(session: PulsarSession, command: CommandConnect, shown: Credentials) -> bool:
    logins = session.cases.logins
    if shown.method not in logins.methods and logins.has_anonymous and not shown.job:
        # As in Pulsar's broker, credentials of a method that the server does not use count as none.
        shown = session.credentials("", b"")
    try:
        session.log_in(shown, command.original_principal)
    except InvalidRoles as error:
        session.refuse_login(ServerError.AuthorizationError, "Invalid roles.", error)
    except TooManyConnections as error:
        session.refuse_login(ServerError.NotAllowedError, str(error), error)
    except AuthenticationFailed as error:
        session.refuse_login(ServerError.AuthenticationError, _REFUSED, error)
    else:
        return True
    return False


def ping(session: PulsarSession, command: CommandPing) -> Answer:
    return _PONG


def pong(session: PulsarSession, command: CommandPong) -> Answer:
    return None  # only its arrival counts, which the session has noted


def auth_response(session: PulsarSession, command: CommandAuthResponse) -> Answer:
    shown = command.response
    try:
        session.renew_login(session.credentials(shown.auth_method_name, shown.auth_data))
    except AuthenticationFailed as error:
        session.refuse_login(ServerError.AuthenticationError, _REFUSED, error)
    return None


COMMANDS = (
    Command(BaseCommand.CONNECT, connect),
    Command(BaseCommand.PING, ping),
    Command(BaseCommand.PONG, pong),
    Command(BaseCommand.AUTH_RESPONSE, auth_response),
)
