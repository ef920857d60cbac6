"""Reads the JSON of a server's answers."""

from typing import Any

from magnetar.client.errors import BadAnswer


def field_of(answer: Any, name: str) -> Any:
    """A field that a client needs; it ignores additional fields of later servers.  Raises BadAnswer."""
    try:
        return answer[name]
    except (KeyError, TypeError, IndexError):
        raise BadAnswer(
            f"the server's answer has no {name}: its version may not suit this client's"
        ) from None
