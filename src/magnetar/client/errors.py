"""What asking a server can end with.  Each text is one sentence for the person who asked."""

from magnetar.base.errors import MagnetarError


class ClientError(MagnetarError):
    """Base of everything that a client raises."""


class Unreachable(ClientError):
    """No server answers at the address, or the connection broke, for longer than the client tries again."""


class BadAnswer(ClientError):
    """What answers there is not a Magnetar server that this client understands."""


class Refused(ClientError):
    """The server will not do it.  `code` tells a program why (`UNKNOWN_TOPIC`), `status` is HTTP's."""

    def __init__(self, reason: str, code: str, status: int) -> None:
        super().__init__(reason)
        self.code = code
        self.status = status


class NotFound(Refused):
    """What was asked for is not there: a topic, a lease, a schema."""


class OutOfRange(Refused):
    """The offset lies before the log's start or behind its end."""


class Unavailable(Refused):
    """The server cannot do it now."""
