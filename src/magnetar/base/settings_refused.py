"""The server's keys that may only say no: accepting them quietly would leave a server open that its operator believes
closed.
"""

from typing import Final

from magnetar.base.config import ConfigType, Value
from magnetar.base.server_key import ServerKey


def _only_empty(value: Value) -> str | None:
    return "must be empty: it is not available yet" if value else None


REFUSED_KEYS: Final = (
    ServerKey(
        "saslAllowedMechanisms",
        ConfigType.LIST,
        "",
        "KoP's SASL mechanisms.",
        check=_only_empty,
        no_effect="SASL is not available yet",
    ),
)
