"""Resource groups: list, show, create, change, delete; and the group of a namespace.

All of it requires rights to the cluster.  In Pulsar a tenant's administrator may choose the group of a namespace, and
so could leave its limits, or use up what other tenants have in theirs.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from magnetar.base.config import INT_MAX, LONG_MAX
from magnetar.base.names import InvalidTopicName, check_named_entity
from magnetar.broker.policy.errors import InvalidPolicy, MalformedPolicy, ResourceGroupNotFound
from magnetar.broker.policy.model import RESOURCE_GROUP, JsonValue, whole_number
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.quotas.model import GroupRates
from magnetar.broker.quotas.resource_groups import ResourceGroups
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation

GROUPS_MAX: Final = 10_000
RATES: Final[Mapping[str, int]] = {  # and what they are at most
    "publishRateInMsgs": INT_MAX,
    "publishRateInBytes": LONG_MAX,
    "dispatchRateInMsgs": INT_MAX,
    "dispatchRateInBytes": LONG_MAX,
}


class ResourceGroupCases:
    """See the module's text."""

    def __init__(self, access: AccessControl, groups: ResourceGroups, namespaces: Namespaces) -> None:
        self._access = access
        self._groups = groups
        self._namespaces = namespaces

    def list(self, caller: Caller) -> Sequence[str]:
        """The names of all.  Raises ClusterNotAuthorized."""
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
        return self._groups.names

    def describe(self, caller: Caller, name: str) -> GroupRates:
        """Raises ClusterNotAuthorized, ResourceGroupNotFound."""
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
        return self._find(name)

    async def put(self, caller: Caller, name: str, given: Mapping[str, JsonValue]) -> None:
        """Create a group, or change those of its rates that are given, as Pulsar does.

        Raises:
            ClusterNotAuthorized, InvalidPolicy, MetadataError: nothing has changed.
        """
        async with self._access.change(
            caller, Operation.ALTER_CONFIGS, CLUSTER, Change.RESOURCE_GROUP_SET, group=name
        ) as recording:
            rates = _checked(given)
            recording.details["rates"] = rates
            if name not in self._groups:
                self._check_new(name)
            await self._groups.put(name, rates)

    async def delete(self, caller: Caller, name: str) -> None:
        """Raises ClusterNotAuthorized, ResourceGroupNotFound, ResourceGroupInUse, MetadataError."""
        async with self._access.change(
            caller, Operation.ALTER_CONFIGS, CLUSTER, Change.RESOURCE_GROUP_DELETE, group=name
        ):
            self._find(name)
            await self._namespaces.delete_group(name, partial(self._groups.delete, name))

    async def join(self, caller: Caller, namespace: str, group: str | None) -> None:
        """Put a namespace into another group, or with no group take it out of its own.

        Raises:
            ClusterNotAuthorized, NamespaceNotFound, InvalidPolicy, MetadataError: nothing has changed.
        """
        async with self._access.change(
            caller,
            Operation.ALTER_CONFIGS,
            CLUSTER,
            Change.NAMESPACE_RESOURCE_GROUP,
            namespace=namespace,
            group=group,
        ):
            await self._namespaces.change(namespace, lambda values: {**values, RESOURCE_GROUP: group})

    def _find(self, name: str) -> GroupRates:
        found = self._groups.find(name)
        if found is None:
            raise ResourceGroupNotFound("ResourceGroup does not exist")
        return found

    def _check_new(self, name: str) -> None:
        try:
            check_named_entity("resource group", name)
        except InvalidTopicName as error:
            raise InvalidPolicy(str(error)) from None
        if len(self._groups) >= GROUPS_MAX:
            raise InvalidPolicy(f"there are {GROUPS_MAX} resource groups at most")


def _checked(given: Mapping[str, JsonValue]) -> dict[str, int]:
    rates = {}
    for name, value in given.items():
        if value is None:
            continue
        if name not in RATES:
            raise InvalidPolicy(f"{name[:100]} is not supported as a rate of a resource group")
        number = whole_number(value)
        if number is None:
            raise MalformedPolicy(f"{name} must be a whole number")
        if not -1 <= number <= RATES[name]:
            raise InvalidPolicy(f"{name} must be from -1, which is no limit, to {RATES[name]}")
        rates[name] = number
    return rates
