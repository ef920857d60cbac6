"""Functions: people declare, change, list, show, start, stop and delete them, and look at their state.

All of it is asked of the namespace: FUNCTIONS is the right to run code there, and to see what runs.  A function acts
for the caller who declared it or changed it last, whatever else that caller may do, and runs while that caller has the
right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magnetar.base.names import TopicName, parse_partition
from magnetar.broker.jobs.errors import FunctionNotFound, InvalidFunction
from magnetar.broker.jobs.function_model import Function, new_function
from magnetar.broker.jobs.functions import Functions
from magnetar.broker.jobs.model import FunctionName, InstanceSays, Kept
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import (
    Caller,
    Operation,
    namespace_resource,
    topic_resource,
)
from magnetar.broker.usecases.function_ends import HOST, FunctionEnds


@dataclass(frozen=True, slots=True)
class FunctionView:
    """The configuration of a function, and what each of its instances last said."""

    config: Mapping[str, Any]
    instances: Mapping[int, InstanceSays]


def may_run(access: AccessControl, function: Function) -> bool:
    """Whether the owner of a function may run it, now."""
    return access.permits(_owner(function), Operation.FUNCTIONS, namespace_resource(function.namespace_name))


def may_write(access: AccessControl, function: Function, topic: str) -> bool:
    """Whether the owner of a function may write to a topic, which it names in full, now."""
    resource = topic_resource(parse_partition(topic)[0].full)
    return access.permits(_owner(function), Operation.WRITE, resource)


class FunctionCases:
    """See the module's text."""

    def __init__(
        self, access: AccessControl, functions: Functions, namespaces: Namespaces, ends: FunctionEnds
    ) -> None:
        self._access = access
        self._ends = ends
        self._functions = functions
        self._namespaces = namespaces

    # --- looking -----------------------------------------------------------------------------------------------------

    def names(self, caller: Caller, tenant: str, namespace: str) -> Sequence[str]:
        """Raises NamespaceNotAuthorized, FunctionsDisabled, NamespaceNotFound."""
        self._access.require(caller, Operation.FUNCTIONS, namespace_resource(f"{tenant}/{namespace}"))
        found = self._functions.in_namespace(tenant, namespace)
        self._namespaces.require(f"{tenant}/{namespace}")
        return [one.name for one in found]

    def describe(self, caller: Caller, name: FunctionName) -> FunctionView:
        """Raises NamespaceNotAuthorized, FunctionsDisabled, FunctionNotFound."""
        self._access.require(caller, Operation.FUNCTIONS, namespace_resource(name.namespace_name))
        function = self._functions.get(*name)
        return FunctionView(
            function.config, {one: self._functions.says(function, one) for one in function.instances}
        )

    def instance(self, caller: Caller, name: FunctionName, instance: int) -> InstanceSays:
        """What an instance last said.  Raises as `describe`, also FunctionNotFound if there is no such instance."""
        found = self.describe(caller, name).instances.get(instance)
        if found is None:
            raise FunctionNotFound(f"{name.name[:100]} has no instance {instance}")
        return found

    async def code(self, caller: Caller, name: FunctionName) -> tuple[str, bytes]:
        """The name and the content of the file of a function's code.  Raises as `describe`; also MetadataError."""
        self._access.require(caller, Operation.FUNCTIONS, namespace_resource(name.namespace_name))
        function = self._functions.get(*name)
        return function.file_name, await self._functions.code(function)

    async def state(self, caller: Caller, name: FunctionName, key: str) -> Kept:
        """What a function keeps of a key.

        Raises:
            NamespaceNotAuthorized, FunctionsDisabled, InvalidFunction
            FunctionNotFound: also if it keeps nothing of the key.
        """
        self._access.require(caller, Operation.FUNCTIONS, namespace_resource(name.namespace_name))
        return await self._functions.state(self._functions.get(*name), key)

    async def trigger(self, caller: Caller, name: FunctionName, topic: str, content: bytes) -> bytes | None:
        """Send a message to an input of a function (to its only one if `topic` is empty), and return the output; None
        of a function without outputs.

        An instance does both as the function's owner.  So the caller, too, has to have the rights to write to the
        input and to read the output.

        Raises:
            NamespaceNotAuthorized, TopicNotAuthorized, FunctionsDisabled, FunctionNotFound, InvalidTopicName
            FunctionTimedOut: there is no output in time.
            FunctionBusy: it is being triggered too often.
            InvalidFunction: it has no such input, or no instance runs.
        """
        self._access.require(caller, Operation.FUNCTIONS, namespace_resource(name.namespace_name))
        function = self._functions.get(*name)
        found = _input(function, TopicName.parse(topic).full if topic else "")
        self._access.require(caller, Operation.WRITE, topic_resource(parse_partition(found)[0].full))
        output = function.config.get("output")
        if output is not None:
            self._access.require(caller, Operation.READ, topic_resource(parse_partition(output)[0].full))
        return await self._functions.trigger(function, found, content)

    # --- changing ----------------------------------------------------------------------------------------------------

    def require(self, caller: Caller, tenant: str, namespace: str) -> None:
        """Ask before the door takes code of megabytes.  Raises NamespaceNotAuthorized, FunctionsDisabled."""
        self._access.require(caller, Operation.FUNCTIONS, namespace_resource(f"{tenant}/{namespace}"))
        self._functions.in_namespace(tenant, namespace)

    async def create(
        self,
        caller: Caller,
        name: FunctionName,
        config: Mapping[str, Any],
        file_name: str,
        code: bytes,
    ) -> None:
        """Declare a function, which acts for the caller from now on, and let it run.

        Raises:
            NamespaceNotAuthorized, ClusterNotAuthorized, FunctionsDisabled, NamespaceNotFound, InvalidFunction,
            FunctionExists, MetadataError
        """
        async with self._changing(caller, name, Change.FUNCTION_CREATE):
            self._access.require_lasting(caller)
            self._functions.in_namespace(name.tenant, name.namespace)
            self._namespaces.require(name.namespace_name)
            await self._functions.create(new_function(*name, config, file_name, caller.principal), code)

    async def update(
        self,
        caller: Caller,
        name: FunctionName,
        config: Mapping[str, Any],
        file_name: str,
        code: bytes | None,
    ) -> None:
        """Change a function, which acts for the caller from now on; without code it keeps what it has.

        Raises:
            NamespaceNotAuthorized, ClusterNotAuthorized, FunctionsDisabled, FunctionNotFound, InvalidFunction,
            MetadataError
        """
        async with self._changing(caller, name, Change.FUNCTION_UPDATE):
            self._access.require_lasting(caller)
            await self._functions.update(new_function(*name, config, file_name, caller.principal), code)

    async def delete(self, caller: Caller, name: FunctionName) -> None:
        """Stop a function, drop its subscription if its configuration says so, and delete it.

        Raises:
            NamespaceNotAuthorized, FunctionsDisabled, FunctionNotFound, FunctionBusy, MetadataError, StorageError
        """
        async with self._changing(caller, name, Change.FUNCTION_DELETE):
            await self._ends.end(caller, self._functions.get(*name))

    async def start(self, caller: Caller, name: FunctionName, instance: int | None) -> None:
        """Let an instance run, or all.  Raises as `delete`."""
        async with self._changing(caller, name, Change.FUNCTION_START):
            await self._functions.run(*name, instance, wanted=True)

    async def stop(self, caller: Caller, name: FunctionName, instance: int | None) -> None:
        """Stop an instance, or all.  Raises as `delete`."""
        async with self._changing(caller, name, Change.FUNCTION_STOP):
            await self._functions.run(*name, instance, wanted=False)

    async def restart(self, caller: Caller, name: FunctionName, instance: int | None) -> None:
        """Stop an instance, or all, and let it run again.  Raises as `delete`."""
        async with self._changing(caller, name, Change.FUNCTION_RESTART):
            await self._functions.run(*name, instance, wanted=True, again=True)

    async def put_state(
        self,
        caller: Caller,
        name: FunctionName,
        key: str,
        data: bytes | None,
        number: int | None,
    ) -> None:
        """Keep bytes, or a counter, under a key.  Raises as `delete`; also InvalidFunction."""
        async with self._changing(caller, name, Change.FUNCTION_STATE):
            await self._functions.put_state(self._functions.get(*name), key, data, number)

    def _changing(self, caller: Caller, name: FunctionName, change: Change) -> Recording:
        """Ask for the right, and audit the change with its result."""
        resource = namespace_resource(name.namespace_name)
        return self._access.change(caller, Operation.FUNCTIONS, resource, change, function=name.name)


def _input(function: Function, topic: str) -> str:
    """The input to which a trigger sends.  Raises InvalidFunction."""
    specs: Mapping[str, Mapping[str, Any]] = function.config["inputSpecs"]
    names = [name for name, spec in specs.items() if not spec["isRegexPattern"]]
    if not topic and len(specs) > 1:
        raise InvalidFunction("Function in trigger function has more than 1 input topics")
    if not names or (topic and topic not in names):
        raise InvalidFunction("Function in trigger function has unidentified topic")
    return topic or names[0]


def _owner(function: Function) -> Caller:
    return Caller(function.owner, HOST, by_token=True)
