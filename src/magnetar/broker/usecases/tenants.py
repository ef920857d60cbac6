"""Tenants: list, show, create, change, delete."""

from collections.abc import Callable, Mapping, Sequence

from magnetar.broker.policy.model import Tenant
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation, namespace_resource, tenant_resource
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.broker.usecases.function_ends import FunctionEnds


class TenantCases:
    """See the module's text.  `require_forced_deletion` is `NamespaceCases`'."""

    def __init__(
        self,
        access: AccessControl,
        namespaces: Namespaces,
        pulsar_topics: PulsarTopics,
        function_ends: FunctionEnds,
        require_forced_deletion: Callable[[Caller, str], None],
    ) -> None:
        self._access = access
        self._require_forced_deletion = require_forced_deletion
        self._function_ends = function_ends
        self._namespaces = namespaces
        self._pulsar_topics = pulsar_topics

    def list(self, caller: Caller) -> Sequence[str]:
        """The names of all tenants, ascending.  Requires the right to describe the cluster, as in Pulsar.

        Raises:
            ClusterNotAuthorized
        """
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)
        return self._namespaces.tenants

    def describe(self, caller: Caller, name: str) -> Tenant:
        """Raises TenantNotAuthorized, TenantNotFound."""
        self._access.require(caller, Operation.DESCRIBE, tenant_resource(name))
        return self._namespaces.tenant(name)

    async def create(self, caller: Caller, tenant: Tenant) -> None:
        """Raises TenantNotAuthorized, TenantExists, InvalidNamespace, UnknownCluster, MetadataError."""
        async with self._access.change(
            caller, Operation.CREATE, tenant_resource(tenant.name), Change.TENANT_CREATE, **_audited(tenant)
        ):
            await self._namespaces.create_tenant(tenant)

    async def update(self, caller: Caller, tenant: Tenant) -> None:
        """Raises TenantNotAuthorized, TenantNotFound, InvalidNamespace, UnknownCluster, MetadataError."""
        async with self._access.change(
            caller, Operation.ALTER, tenant_resource(tenant.name), Change.TENANT_UPDATE, **_audited(tenant)
        ):
            await self._namespaces.update_tenant(tenant)

    async def delete(self, caller: Caller, name: str, *, force: bool = False) -> None:
        """Delete a tenant.  With `force`, also delete everything in it, if the caller may delete each of its namespaces
        with all that is in it: rules may deny that to an administrator.

        Raises:
            TenantNotAuthorized, NamespaceNotAuthorized, TopicNotAuthorized, TenantNotFound, TenantNotEmpty,
            MetadataError, StorageError
            FunctionBusy: a process of a function in it does not end.
        """
        async with self._access.change(
            caller, Operation.DELETE, tenant_resource(name), Change.TENANT_DELETE, force=force
        ):
            if force:
                for namespace in self._namespaces.names_of(name):
                    self._access.require_unnamed(caller, Operation.DELETE, namespace_resource(namespace))
                    self._require_forced_deletion(caller, namespace)
                for namespace in self._namespaces.names_of(name):
                    await self._function_ends.end_all(caller, namespace)
                    await self._pulsar_topics.delete_namespace(namespace, force=True)
            await self._namespaces.delete_tenant(name)


def _audited(tenant: Tenant) -> Mapping[str, object]:
    return {"admin_roles": tenant.admin_roles, "clusters": tenant.clusters}
