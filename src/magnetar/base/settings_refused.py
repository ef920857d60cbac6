"""The server's keys that may only say no: accepting them quietly would leave a server open that its operator believes
closed.
"""

from typing import Final

from magnetar.base.config import ConfigType, Value
from magnetar.base.server_key import ServerKey


def _only_false(value: Value) -> str | None:
    return "cannot be true: it is not available yet" if value is True else None


def _only_empty(value: Value) -> str | None:
    return "must be empty: it is not available yet" if value else None


REFUSED_KEYS: Final = (
    ServerKey(
        "authenticationEnabled",
        ConfigType.BOOLEAN,
        "false",
        "Pulsar's authentication.",
        check=_only_false,
        no_effect="it is not available yet",
    ),
    ServerKey(
        "saslAllowedMechanisms",
        ConfigType.LIST,
        "",
        "KoP's SASL mechanisms.",
        check=_only_empty,
        no_effect="SASL is not available yet",
    ),
)
