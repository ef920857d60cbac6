"""The cluster and its one server: what callers may know, whether it works, and what an administrator can have it do."""

from collections.abc import Mapping
from typing import Final

from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation
from magnetar.broker.upkeep.health import Health
from magnetar.broker.upkeep.housekeeping import Housekeeping

WITHHELD: Final = "log in with the right to DESCRIBE the cluster to see what it is"


class ClusterCases:
    """See the module's text."""

    def __init__(self, access: AccessControl, health: Health, housekeeping: Housekeeping) -> None:
        self._access = access
        self._health = health
        self._housekeeping = housekeeping

    def describe(self, caller: Caller) -> None:
        """Check that the caller may know brokers and their addresses.  Raises ClusterNotAuthorized."""
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)

    def describe_configs(self, caller: Caller) -> None:
        """Check that the caller may know the server's settings.  Raises ClusterNotAuthorized."""
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)

    def create(self, caller: Caller) -> None:
        """Check that the caller may add a cluster.  Raises ClusterNotAuthorized."""
        self._access.require(caller, Operation.CREATE, CLUSTER)

    def alter(self, caller: Caller) -> None:
        """Check that the caller may change what is stored about clusters.  Raises ClusterNotAuthorized."""
        self._access.require(caller, Operation.ALTER, CLUSTER)

    async def check_quotas(self, caller: Caller) -> None:
        """Look at all topics' backlogs now, and apply their policies.  Raises ClusterNotAuthorized."""
        self._access.require(caller, Operation.ALTER, CLUSTER)
        await self._housekeeping.run_once()

    # --- health: load balancers ask, which have no rights -------------------------------------------------------------
    # They learn which part fails.  Why is for callers that may describe the cluster: sentences name topics and files.

    async def health_checks(self, caller: Caller | None) -> Mapping[str, str | None]:
        """All parts of the server by name, and what is wrong with each; `caller` is None for one that has not logged in
        where clients have to.
        """
        found = await self._health.checks()
        if not any(found.values()) or self._may_know(caller):
            return found
        return {name: WITHHELD if problem else None for name, problem in found.items()}

    def health_notes(self, caller: Caller | None) -> Mapping[str, str]:
        """Further notes about its health, by name; `caller` as for `health_checks`."""
        found = self._health.notes()
        return found if not found or self._may_know(caller) else dict.fromkeys(found, WITHHELD)

    def _may_know(self, caller: Caller | None) -> bool:
        return caller is not None and self._access.permits(caller, Operation.DESCRIBE, CLUSTER)
