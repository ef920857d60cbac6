"""Which variables of the server's environment replicators may use as credentials: none, unless a setting says so.

A namespace's administrator names variables, and gets what is in them sent to a target of the administrator's choice.
So the operator lists them, each for a namespace, for a tenant or for all:

    acme/orders:ORDERS_KEY    acme/*:ACME_*    */*:SHARED_KEY
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from magnetar.base.errors import ConfigError

SETTING: Final = "replicators.keystore.environment"
EVERY: Final = "*"
_RULE: Final = re.compile(r"(?P<tenant>[^/:]+)/(?P<namespace>[^/:]+):(?P<variable>[A-Za-z_][A-Za-z0-9_]*\*?)")


class _Rule(NamedTuple):
    tenant: str
    namespace: str
    variable: str

    def allows(self, tenant: str, namespace: str, variable: str) -> bool:
        prefix = self.variable.removesuffix(EVERY)
        fits = variable.startswith(prefix) if prefix != self.variable else variable == prefix
        return fits and self.tenant in (tenant, EVERY) and self.namespace in (namespace, EVERY)


@dataclass(frozen=True, slots=True)
class ReplicatorVariables:
    """See the module's text."""

    rules: tuple[_Rule, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Raises ConfigError for what is no rule."""
        rules = []
        for text in texts:
            found = _RULE.fullmatch(text)
            if found is None:
                raise ConfigError(
                    f"{SETTING}: {text[:200]!r} must be tenant/namespace:VARIABLE; a tenant or a namespace may be"
                    " *, and a variable may end with it"
                )
            rules.append(_Rule(found["tenant"], found["namespace"], found["variable"]))
        return cls(tuple(rules))

    def allow(self, namespace: str, variable: str) -> bool:
        """Whether replicators of `tenant/namespace` may use a variable."""
        tenant, _, local = namespace.partition("/")
        return any(rule.allows(tenant, local, variable) for rule in self.rules)
