"""What a session needs of its connection."""

from typing import Protocol

from magnetar.wire.kafka.runtime import Buffer


class Peer(Protocol):
    """What a session may do to its connection; the server implements it."""

    def send(self, parts: list[Buffer]) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
