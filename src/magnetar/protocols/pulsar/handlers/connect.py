"""CONNECT, PING, PONG, AUTH_RESPONSE: the connection itself.

Without authentication any credentials are accepted, as by a Pulsar broker without it; no AUTH_CHALLENGE is ever sent,
so an AUTH_RESPONSE, which a client sends of itself to refresh what it has, is taken and not answered.
"""

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
)

_PONG = BaseCommand(type=BaseCommand.PONG, pong=CommandPong())


def connect(session: PulsarSession, command: CommandConnect) -> Answer:
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
            ),
        ),
    )


def ping(session: PulsarSession, command: CommandPing) -> Answer:
    return _PONG


def pong(session: PulsarSession, command: CommandPong) -> Answer:
    return None  # that something came is what counts, and the session has noted it


def auth_response(session: PulsarSession, command: CommandAuthResponse) -> Answer:
    return None


COMMANDS = (
    Command(BaseCommand.CONNECT, connect),
    Command(BaseCommand.PING, ping),
    Command(BaseCommand.PONG, pong),
    Command(BaseCommand.AUTH_RESPONSE, auth_response),
)
