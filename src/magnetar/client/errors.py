"""The errors of requests to a server.  Each text is one sentence for the user."""

from magnetar.base.errors import MagnetarError


class ClientError(MagnetarError):
    """The base class of all errors that a client raises."""


class Unreachable(ClientError):
    """No server answers at the address, or connections break, for longer than the client tries again."""


class BadAnswer(ClientError):
    """The program that answers is no Magnetar server that this client understands."""


class Refused(ClientError):
    """The server refuses the request.  `code` is the reason for programs (`UNKNOWN_TOPIC`), `status` is HTTP's."""

    def __init__(self, reason: str, code: str, status: int) -> None:
        super().__init__(reason)
        self.code = code
        self.status = status


class NotFound(Refused):
    """The requested topic, lease or schema does not exist."""


class OutOfRange(Refused):
    """The offset is before the log's start or after its end."""


class Unavailable(Refused):
    """The server cannot carry out the request now."""
