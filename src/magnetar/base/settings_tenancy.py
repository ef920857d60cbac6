"""How many tenants and namespaces there may be, by the keys of Pulsar's broker."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from magnetar.base.config import ConfigType
from magnetar.base.server_key import ServerKey

_TENANTS: Final = "maxTenants"
_NAMESPACES: Final = "maxNamespacesPerTenant"


@dataclass(frozen=True, slots=True)
class TenancyLimits:
    """How many tenants there may be, and how many namespaces of each; 0: no limit."""

    tenants: int = 0
    namespaces_per_tenant: int = 0


TENANCY_KEYS: Final = (
    ServerKey(
        _TENANTS,
        ConfigType.INT,
        "0",
        "How many tenants there may be, also those that topics of Kafka's clients bring along; 0: no limit.",
        minimum=0,
    ),
    ServerKey(
        _NAMESPACES,
        ConfigType.INT,
        "0",
        "How many namespaces each tenant may have, also those that topics of Kafka's clients bring along; 0: no limit.",
        minimum=0,
    ),
)


def tenancy_limits(integer: Callable[[str], int]) -> TenancyLimits:
    """What the keys come to, by `integer`."""
    return TenancyLimits(integer(_TENANTS), integer(_NAMESPACES))
