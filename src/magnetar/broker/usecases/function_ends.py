"""How a function ends: its processes stop, its subscription goes if it shall, and then it is deleted.

In this order, so that a crash on the way leaves a function that can be deleted again, and no process subscribes anew.
"""

from collections.abc import Mapping
from typing import Any, Final

from magnetar.base.names import PERSISTENT, parse_partition
from magnetar.base.patterns import whole_matcher
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.jobs.function_model import Function
from magnetar.broker.jobs.functions import Functions
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.errors import NamespaceNotFound
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, subscription_resource
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.topics.pulsar import PulsarTopics

HOST: Final = "127.0.0.1"  # from where the processes of functions connect


class FunctionEnds:
    """See the module's text.  Its caller has asked for the rights."""

    def __init__(
        self,
        access: AccessControl,
        functions: Functions,
        pulsar_topics: PulsarTopics,
        subscriptions: SubscriptionAdmin,
    ) -> None:
        self._access = access
        self._functions = functions
        self._pulsar_topics = pulsar_topics
        self._subscriptions = subscriptions

    async def end(self, caller: Caller, function: Function) -> None:
        """Delete a function, for a caller who may.

        Its subscription is dropped only where the function's owner may read by it: a function that names another's
        subscription could not have used it, and must not drop it.

        Raises:
            FunctionNotFound, MetadataError, StorageError
            FunctionBusy: it is being deleted already, or a process of it does not end.
        """
        async with self._functions.ending(function):
            if function.config["cleanupSubscription"]:
                for partition in await self._inputs(function):
                    await self._unsubscribe(caller, function, partition)
            await self._functions.delete(function)

    async def end_all(self, caller: Caller, namespace: str) -> None:
        """Delete all functions of a namespace.  Raises as `end`."""
        for one in self._functions.stored_in(namespace):
            await self.end(caller, one)

    async def _unsubscribe(self, caller: Caller, function: Function, partition: Partition) -> None:
        name, topic = function.subscription, partition.topic.name.full
        resource = subscription_resource(topic, name)
        owner = Caller(function.owner, HOST, by_token=True)
        if name not in self._subscriptions.names(partition) or not self._access.permits(
            owner, Operation.READ, resource
        ):
            return
        async with self._access.record(
            caller, Change.SUBSCRIPTION_DELETE, resource, automatic=True, function=function.full_name
        ):
            await self._subscriptions.delete(partition, name, force=True)

    async def _inputs(self, function: Function) -> list[Partition]:
        """What there is of the function's inputs."""
        found: dict[tuple[str, int], Partition] = {}
        specs: Mapping[str, Mapping[str, Any]] = function.config["inputSpecs"]
        for name, spec in specs.items():
            try:
                for text in await self._matching(name) if spec["isRegexPattern"] else (name,):
                    for one in self._pulsar_topics.partitions(text):
                        # No other one has subscriptions that outlive their consumers.
                        if one.topic.name.persistent:
                            found[one.topic.name.full, one.index] = one
            except (UnknownTopic, NamespaceNotFound):
                continue
        return list(found.values())

    async def _matching(self, pattern: str) -> list[str]:
        """The topics that clients find by a pattern, which names its namespace."""
        parts = pattern.removeprefix(PERSISTENT).split("/")
        try:
            matches = whole_matcher(f"({PERSISTENT})?{pattern.removeprefix(PERSISTENT)}")
        except ValueError:
            return []  # no client has subscribed by it
        names = await self._pulsar_topics.names("/".join(parts[:2]), persistent=True)
        return [name for name in names if matches(parse_partition(name)[0].full)]
