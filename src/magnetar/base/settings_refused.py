"""Keys of KoP that would close a listener: if the server accepted a value and ignored it, an operator would believe
that an open server is closed.
"""

from typing import Final

from magnetar.base.config import ConfigType, Value
from magnetar.base.server_key import ServerKey


def _only_empty(value: Value) -> str | None:
    if not value:
        return None
    # A listener PLAINTEXT of KoP's asks for a login with this key, and would not here.
    return "must be empty: set sasl.enabled.mechanisms, and listeners that are SASL_PLAINTEXT or SASL_SSL"


REFUSED_KEYS: Final = (
    ServerKey(
        "saslAllowedMechanisms",
        ConfigType.LIST,
        "",
        "KoP's SASL mechanisms.",
        check=_only_empty,
        no_effect="sasl.enabled.mechanisms and the protocols of listeners say how clients log in",
    ),
)
