"""Namespaces: list, show, create, delete, unload.  `policies.py` has their policies."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from magnetar.base.names import TopicName
from magnetar.broker.cluster.bundles import bundle_at, bundles_of, position_of
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.jobs.functions import Functions
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.errors import InvalidNamespace, NamespaceNotFound
from magnetar.broker.policy.model import BUNDLE_COUNT_DEFAULT, RESOURCE_GROUP, JsonValue, Namespace
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import (
    CLUSTER,
    Caller,
    Operation,
    namespace_resource,
    tenant_resource,
    topic_resource,
)
from magnetar.broker.topics.errors import NamespaceNotEmpty
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.broker.upkeep.cluster_part import ClusterPart
from magnetar.broker.usecases.function_ends import FunctionEnds
from magnetar.broker.usecases.policies import audited


class NamespaceCases:
    """See the module's text.  A namespace's name is `tenant/namespace`."""

    def __init__(
        self,
        access: AccessControl,
        namespaces: Namespaces,
        pulsar_topics: PulsarTopics,
        unload: Callable[[Partition], Awaitable[None]],
        functions: Functions,
        function_ends: FunctionEnds,
        part: ClusterPart | None = None,
    ) -> None:
        """`part` is the broker's in a cluster."""
        self._access = access
        self._part = part
        self._functions = functions
        self._function_ends = function_ends
        self._namespaces = namespaces
        self._pulsar_topics = pulsar_topics
        self._unload = unload

    def list(self, caller: Caller, tenant: str) -> Sequence[str]:
        """The names of a tenant's namespaces, ascending.

        Raises:
            TenantNotAuthorized, TenantNotFound
        """
        self._access.require(caller, Operation.DESCRIBE, tenant_resource(tenant))
        return self._namespaces.names_of(tenant)

    def list_served(self, caller: Caller) -> Sequence[Namespace]:
        """All namespaces, because this server serves all of them.  Raises ClusterNotAuthorized."""
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)
        return [self._namespaces.require(name) for name in self._namespaces.names]

    def describe(self, caller: Caller, name: str) -> Namespace:
        """Raises NamespaceNotAuthorized, NamespaceNotFound."""
        self._access.require(caller, Operation.DESCRIBE, namespace_resource(name))
        return self._namespaces.require(name)

    async def create(
        self,
        caller: Caller,
        name: str,
        policies: Mapping[str, JsonValue],
        bundle_count: int = BUNDLE_COUNT_DEFAULT,
    ) -> None:
        """Create a namespace with these policies.  Choosing its resource group takes a right to the cluster.

        Raises:
            ClusterNotAuthorized, NamespaceNotAuthorized
            TenantNotFound, NamespaceExists, InvalidNamespace, InvalidPolicy, MetadataError
        """
        async with self._access.change(
            caller,
            Operation.CREATE,
            namespace_resource(name),
            Change.NAMESPACE_CREATE,
            policies=audited(policies),
        ):
            if policies.get(RESOURCE_GROUP) is not None:
                self._access.require(caller, Operation.ALTER_CONFIGS, CLUSTER)
            await self._namespaces.create(name, policies, bundle_count)

    async def delete(self, caller: Caller, name: str, *, force: bool = False) -> None:
        """Delete a namespace; with `force` its functions and topics, too, if the caller may run functions there and
        delete each of the topics.

        Raises:
            NamespaceNotAuthorized, TopicNotAuthorized, NamespaceNotFound, NamespaceNotEmpty, MetadataError,
            StorageError
            FunctionBusy: a process of a function in it does not end.
        """
        async with self._access.change(
            caller, Operation.DELETE, namespace_resource(name), Change.NAMESPACE_DELETE, force=force
        ):
            if name not in self._namespaces:
                raise NamespaceNotFound(f"Namespace {name} does not exist.")
            if force:
                self.require_forced_deletion(caller, name)
            elif self._functions.stored_in(name):
                raise NamespaceNotEmpty("Cannot delete non empty namespace: it has functions")
            await self._function_ends.end_all(caller, name)
            await self._pulsar_topics.delete_namespace(name, force=force)

    def require_forced_deletion(self, caller: Caller, name: str) -> None:
        """Check that the caller, which may delete the namespace, may delete all that is in it.

        Raises:
            NamespaceNotAuthorized, TopicNotAuthorized
        """
        if self._functions.stored_in(name):
            self._access.require(caller, Operation.FUNCTIONS, namespace_resource(name))
        for topic in self._pulsar_topics.of_namespace(name):
            self._access.require_unnamed(caller, Operation.DELETE, topic.resource)

    def check_replication(self, caller: Caller, name: str) -> None:
        """Check that the caller may set which clusters have the namespace.  There is one cluster, so nothing changes.

        Raises:
            NamespaceNotAuthorized, NamespaceNotFound
        """
        self._access.require(caller, Operation.ALTER_CONFIGS, namespace_resource(name))
        self._namespaces.require(name)

    # --- parts of the hash space -------------------------------------------------------------------------------------

    def bundle_of(self, caller: Caller, topic: TopicName, index: int) -> str:
        """The part of its namespace's hash space that contains a topic, or (`index` from 0) one of its partitions.

        Raises:
            TopicNotAuthorized, NamespaceNotFound
        """
        self._access.require(caller, Operation.DESCRIBE, topic_resource(topic.full))
        name = topic.namespace_name
        bundles = bundles_of(name, self._namespaces.require(name).bundle_count)
        position = position_of(topic.full if index < 0 else topic.partition_name(index))
        return next(bundle.range for bundle in bundles if bundle.contains(position))

    async def unload(self, caller: Caller, name: str, bundle: str = "") -> None:
        """Close all producers and consumers of a namespace, or of one part of its hash space; they reconnect.  In a
        cluster its owners let it go, and the leader gives each bundle to a broker.

        Raises:
            NamespaceNotAuthorized, NamespaceNotFound
            InvalidNamespace: it has no such part.
        """
        async with self._access.change(
            caller, Operation.ALTER, namespace_resource(name), Change.NAMESPACE_UNLOAD, bundle=bundle
        ):
            if name not in self._namespaces:
                raise NamespaceNotFound("Namespace not found")
            (unloaded,) = bundles_of(name, 1)
            if bundle:
                boundaries = self._namespaces.require(name).bundle_boundaries
                begin, _, end = bundle.partition("_")
                if begin not in boundaries or end not in boundaries:
                    raise InvalidNamespace(f"Invalid bundle range {bundle[:100]}")
                unloaded = bundle_at(name, bundle)
            if self._part is not None:
                await self._part.unload(unloaded)
                return
            topics = self._pulsar_topics
            chosen = []
            for persistent in (True, False):
                for one in await topics.names(name, persistent=persistent):
                    if unloaded.contains(position_of(one)):
                        with suppress(UnknownTopic):  # deleted meanwhile
                            chosen.append(topics.partition(one))
            await asyncio.gather(*map(self._unload, chosen))
