"""The address of a source: `kafka://host:9092`, or `kafka://host:9092,other:9092`."""

import re
from typing import Final

from magnetar.base.errors import ConfigError

_SCHEME: Final = "kafka://"
_HOST: Final = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
_CHARS_MAX: Final = 1000


def servers_of(address: str) -> str:
    """The `host:port` of an address, separated by commas.

    Raises:
        ConfigError: it is no address of a Kafka cluster.
    """
    servers = address.removeprefix(_SCHEME).rstrip("/")
    if "@" in servers:  # the address is stored and shown
        raise ConfigError("the source's address has a user in it: give the login in a file (--source-config)")
    if (
        not address.startswith(_SCHEME)
        or len(address) > _CHARS_MAX
        or not all(_HOST.fullmatch(one) for one in servers.split(","))
    ):
        raise ConfigError(f"{address[:200]!r} is no source: give it as kafka://host:9092")
    return servers
