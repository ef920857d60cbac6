"""Declared functions: what they are, what is wanted of them, and what their instances say.

The broker runs none of them: the server starts a process for each instance (`server/function_instances.py`), which
gets its orders from here.  Stored::

    /functions/<tenant>/<namespace>/<name>   `Function.encode`
    /function-code/<code>/<part>             the file of code (`function_code.py`)
    /function-state/<id>/<key>               what the function keeps of a key (`function_states.py`)

A declaration and its code become durable in one step, and so they are there together after a crash, or neither is.
The values of its secrets are in key stores (`function_secrets.py`).

A tenant may have half of the functions that other tenants leave, and half of the memory for code and state that they
leave; both are metadata.

Each process logs in with a token of its own, and acts for the function's owner.  The token counts while the process
runs, and is withdrawn when it has ended.  A function runs only while its owner may run functions in its namespace.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from magnetar.base import randomness
from magnetar.base.clock import Clock
from magnetar.base.event import Event
from magnetar.base.job_token import FUNCTION, PREFIXES
from magnetar.base.names import TopicName
from magnetar.base.secret import secret_bytes
from magnetar.broker.jobs.errors import (
    FunctionBusy,
    FunctionExists,
    FunctionNotFound,
    FunctionsDisabled,
    InvalidFunction,
)
from magnetar.broker.jobs.function_code import (
    CODE_PART_BYTES,
    check_code,
    code_deletions,
    read_code,
    with_code,
)
from magnetar.broker.jobs.function_configs import EFFECTIVELY, check_file_name, check_name, checked, merged
from magnetar.broker.jobs.function_model import Function
from magnetar.broker.jobs.function_secrets import FunctionSecrets, places_of
from magnetar.broker.jobs.function_states import FunctionStates
from magnetar.broker.jobs.model import InstanceSays, Kept
from magnetar.broker.policy.model import Policies
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.withdrawals import Withdrawals
from magnetar.metadata.store import ANY_VERSION, Delete, MetadataStore, Put

ROOT: Final = "/functions/"
FUNCTIONS_MAX: Final = 200
KEPT_BYTES_MAX: Final = 512 << 20  # code and state of all functions
ENDING_S_MAX: Final = 30.0  # for all processes of a function that is deleted
TRIGGER_BYTES_MAX: Final = 200 << 10

# Sends a message (topic, content) to an input by an instance, and returns its output, None of a function without one.
# Raises FunctionTimedOut, FunctionBusy, InvalidFunction.
Trigger = Callable[[str, bytes], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class FunctionRights:
    """Whether a function's owner may run it, and whether it may write to a topic (full name), now; `changed` happens
    when the answer may be another one.
    """

    may_run: Callable[[Function], bool]
    may_write: Callable[[Function, str], bool]
    changed: Event[()]


class Functions:
    """All functions of a cluster.  Changes raise MetadataError when they cannot be stored.

    If they are not `enabled`, everything raises FunctionsDisabled, and none runs.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        clock: Clock,
        policies_of: Callable[[TopicName], Policies],
        secrets: FunctionSecrets,
        rights: FunctionRights,
        *,
        enabled: bool,
    ) -> None:
        """`policies_of` has the policies of a topic, which need not be there."""
        self._policies_of = policies_of
        self._secrets = secrets
        self._may_run = rights.may_run
        self._may_write = rights.may_write
        self._metadata = metadata
        self._clock = clock
        self._enabled = enabled
        self._functions: dict[str, Function] = {}
        self._says: dict[tuple[str, int], InstanceSays] = {}
        self._tokens: dict[bytes, Function] = {}
        self.withdrawals = Withdrawals()
        self._triggers: dict[tuple[str, int], Trigger] = {}
        self._ending: set[str] = set()  # the ids of functions that are being deleted
        self._states = FunctionStates(metadata)
        self._changing = asyncio.Lock()
        self._waiting: set[asyncio.Future[None]] = set()
        rights.changed.hear(self._changed)

    async def load(self) -> None:
        """Read all declarations; MetadataError."""
        for path, stored in await self._metadata.scan(ROOT):
            name = path.removeprefix(ROOT)
            self._functions[name] = Function.decode(name, stored.value)
        await self._states.load()
        await self._secrets.load()

    # --- for users ---------------------------------------------------------------------------------------------------

    def all(self) -> list[Function]:
        """In order of name; also if this server runs none."""
        return [self._functions[name] for name in sorted(self._functions)]

    def in_namespace(self, tenant: str, namespace: str) -> list[Function]:
        """In order of name.  Raises FunctionsDisabled."""
        self._require_enabled()
        prefix = f"{tenant}/{namespace}/"
        return [self._functions[name] for name in sorted(self._functions) if name.startswith(prefix)]

    def stored_in(self, namespace: str) -> list[Function]:
        """Those of a namespace (`tenant/namespace`), also if this server runs none."""
        return [one for one in self._functions.values() if one.namespace_name == namespace]

    def get(self, tenant: str, namespace: str, name: str) -> Function:
        """Raises FunctionsDisabled, FunctionNotFound."""
        self._require_enabled()
        found = self._functions.get(f"{tenant}/{namespace}/{name}")
        if found is None:
            raise FunctionNotFound(f"Function {name[:100]} doesn't exist")
        return found

    async def create(self, function: Function, code: bytes) -> Function:
        """Declare a function, of which all but its code's place is given, and let it run.

        Raises:
            FunctionsDisabled, InvalidFunction, FunctionExists
        """
        self._require_enabled()
        check_name(function.name)
        given = self._secrets.given(function.config)
        config = checked(given.config, function.tenant, function.namespace, function.name)
        self._check_policies(replace(function, config=config))
        check_file_name(function.file_name)
        check_code(code)
        async with self._secrets.kept(function, given) as ids, self._changing:
            if function.full_name in self._functions:
                raise FunctionExists(f"Function {function.name} already exists")
            own = sum(one.tenant == function.tenant for one in self._functions.values())
            if own >= (FUNCTIONS_MAX - len(self._functions) + own + 1) // 2:
                raise InvalidFunction(
                    f"the tenant {function.tenant} has {own} functions: no more are allowed"
                )
            self._check_room(function.tenant, len(code))
            secrets = places_of(config, ids, None)
            made = replace(function, config=config, id=randomness.hex_token(8), secrets=secrets)
            made, puts = with_code(made, code)
            moves = self._secrets.moves(None, made)
            await self._metadata.commit([*puts, *moves, Put(ROOT + made.full_name, made.encode())])
            self._functions[made.full_name] = made
            self._changed()
        return made

    async def update(self, change: Function, code: bytes | None) -> Function:
        """Change a function by the words of a configuration and by new code, and start its instances again.

        Raises:
            FunctionsDisabled, FunctionNotFound, InvalidFunction
        """
        self.get(change.tenant, change.namespace, change.name)
        given = self._secrets.given(change.config)
        async with self._secrets.kept(change, given) as ids, self._changing:
            before = self.get(change.tenant, change.namespace, change.name)
            config = checked(
                merged(before.config, given.config), before.tenant, before.namespace, before.name
            )
            self._check_policies(replace(change, config=config))
            if code is None and not ids and config == before.config:
                raise InvalidFunction("Update contains no change")
            secrets = places_of(config, ids, before)
            after = replace(before, config=config, owner=change.owner, run=before.run + 1, secrets=secrets)
            steps: list[Put | Delete] = []
            if code is not None:
                check_file_name(change.file_name)
                check_code(code)
                self._check_room(before.tenant, len(code) - before.code_parts * CODE_PART_BYTES)
                after, puts = with_code(replace(after, file_name=change.file_name), code)
                steps = [*puts, *code_deletions(before)]
            moves = self._secrets.moves(before, after)
            await self._metadata.commit([*steps, *moves, Put(ROOT + after.full_name, after.encode())])
            self._functions[after.full_name] = after
            self._changed()
        await self._secrets.forget(before, after)
        return after

    @asynccontextmanager
    async def ending(self, function: Function) -> AsyncIterator[None]:
        """No process of the function runs within it, and none starts: for what its deletion does before.

        Raises:
            FunctionBusy: it is within it already, or a process has not ended.
        """
        if function.id in self._ending:
            raise FunctionBusy(f"Function {function.name} is being deleted")
        self._ending.add(function.id)
        try:
            self._changed()
            ends_s = self._clock.monotonic() + ENDING_S_MAX
            while any(one.id == function.id for one in self._tokens.values()):
                left_s = ends_s - self._clock.monotonic()
                if left_s <= 0:
                    raise FunctionBusy(f"a process of the function {function.name} has not ended: try again")
                await self.wait_for_change(left_s)
            yield
        finally:
            self._ending.discard(function.id)
            self._changed()

    async def delete(self, function: Function) -> None:
        """Delete a function with its code and its state.  Raises FunctionNotFound."""
        async with self._changing:
            current = self._functions.get(function.full_name)
            if current is None or current.id != function.id:
                raise FunctionNotFound(f"Function {function.name} doesn't exist")
            function = current
            state = await self._states.deletions(function)
            await self._metadata.commit(
                [
                    Delete(ROOT + function.full_name, ANY_VERSION),
                    *code_deletions(function),
                    *self._secrets.moves(function, None),
                    *state,
                ]
            )
            del self._functions[function.full_name]
            self._states.forget(function)
            for key in [key for key in self._says if key[0] == function.id]:
                del self._says[key]
            self._changed()
        await self._secrets.forget(function)

    async def run(
        self,
        tenant: str,
        namespace: str,
        name: str,
        instance: int | None,
        *,
        wanted: bool,
        again: bool = False,
    ) -> None:
        """Start or stop one instance, or all if `instance` is None; `again` also restarts those that run.

        Raises:
            FunctionsDisabled
            FunctionNotFound: also if there is no such instance.
        """
        async with self._changing:
            before = self.get(tenant, namespace, name)
            if instance is not None and instance not in before.instances:
                raise FunctionNotFound(f"Operation not permitted: {name} has no instance {instance}")
            meant = frozenset(before.instances if instance is None else (instance,))
            stopped = before.stopped - meant if wanted else before.stopped | meant
            after = replace(before, stopped=stopped, run=before.run + 1 if again else before.run)
            if after != before:
                await self._metadata.put(ROOT + after.full_name, after.encode())
                self._functions[after.full_name] = after
                self._changed()

    async def trigger(self, function: Function, topic: str, content: bytes) -> bytes | None:
        """The output of a message that is sent to an input now; None of a function without outputs.

        Raises:
            FunctionTimedOut, FunctionBusy
            InvalidFunction: it is too large, or no instance runs.
        """
        if len(content) > TRIGGER_BYTES_MAX:
            raise InvalidFunction(f"a message that triggers a function has at most {TRIGGER_BYTES_MAX} bytes")
        for instance in function.instances:
            if (found := self._triggers.get((function.id, instance))) is not None:
                return await found(topic, content)
        raise InvalidFunction("Function in trigger function is not ready")

    def says(self, function: Function, instance: int) -> InstanceSays:
        """What an instance last said; of one that may not run, that."""
        said = self.last_said(function, instance)
        if said.running or self._may_run(function):
            return said
        refusal = (
            f"the instance cannot run: {function.owner} may not run functions in {function.namespace_name}"
        )
        return replace(said, error=refusal)

    def last_said(self, function: Function, instance: int) -> InstanceSays:
        """What an instance last said, whether it may run or not."""
        return self._says.get((function.id, instance)) or InstanceSays()

    # --- the state of a function -------------------------------------------------------------------------------------

    async def state(self, function: Function, key: str) -> Kept:
        """What is kept of a key.  Raises FunctionNotFound if nothing is."""
        return await self._states.get(function, key)

    async def put_state(self, function: Function, key: str, data: bytes | None, number: int | None) -> None:
        """Keep bytes or a counter.  Raises InvalidFunction."""
        async with self._changing:
            await self._put(function, key, data, number)

    async def count(self, function: Function, key: str, amount: int) -> int:
        """Add to a counter; return what it is then, which is durable.  Raises InvalidFunction."""
        async with self._changing:
            number = await self._states.number(function, key) + amount
            await self._put(function, key, None, number)
            return number

    async def drop_state(self, function: Function, key: str) -> None:
        """Forget a key, which may be none."""
        async with self._changing:
            await self._states.drop(function, key)

    async def _put(self, function: Function, key: str, data: bytes | None, number: int | None) -> None:
        current = self._functions.get(function.full_name)
        if current is None or current.id != function.id:
            raise FunctionNotFound(f"Function {function.name} doesn't exist")
        await self._states.put(
            function, key, data, number, lambda growth: self._check_room(function.tenant, growth)
        )

    def _check_room(self, tenant: str, growth: int) -> None:
        """Raises InvalidFunction if the functions of a tenant would keep too much."""
        own = others = 0
        for one in self._functions.values():
            kept = one.code_parts * CODE_PART_BYTES + self._states.bytes_of(one)
            if one.tenant == tenant:
                own += kept
            else:
                others += kept
        if growth > 0 and own + growth > (KEPT_BYTES_MAX - others) // 2:
            raise InvalidFunction(
                f"the functions of the tenant {tenant} keep {own} bytes of code and state: no more are allowed"
            )

    # --- for what runs them ------------------------------------------------------------------------------------------

    @property
    def is_enabled(self) -> bool:
        return self._enabled

    def wanted(self) -> Sequence[tuple[Function, int]]:
        """Each instance that shall run, and whose owner may run it."""
        if not self._enabled:
            return ()
        return [
            (one, instance)
            for one in self._functions.values()
            if one.id not in self._ending and self._may_run(one)
            for instance in one.instances
            if instance not in one.stopped
        ]

    def ids(self) -> set[str]:
        """Those of all functions that have not been deleted."""
        return {one.id for one in self._functions.values()}

    async def code(self, function: Function) -> bytes:
        """The file of code.  Raises FunctionNotFound if an update or a deletion has removed it."""
        return await read_code(self._metadata, function)

    async def secrets(self, function: Function) -> Mapping[str, str]:
        """The values of its secrets, for a process that starts.  Raises InvalidFunction if a key store has none."""
        return await self._secrets.of(function)

    def heard(self, function: Function, instance: int, says: InstanceSays) -> None:
        """Take what an instance says; of a function that was deleted, nothing."""
        current = self._functions.get(function.full_name)
        if current is not None and current.id == function.id:
            self._says[function.id, instance] = says

    def is_ready(self, function: Function, instance: int, trigger: Trigger) -> None:
        """An instance runs, and is triggered by this until `is_unready`."""
        self._triggers[function.id, instance] = trigger

    def is_unready(self, function: Function, instance: int) -> None:
        """An instance does not run."""
        self._triggers.pop((function.id, instance), None)

    def let_in(self, function: Function) -> bytes:
        """A token by which one process logs in as the function's owner, until `shut_out`.

        Raises:
            FunctionNotFound: the function has been deleted, or is being deleted.
            InvalidFunction: its guarantee needs a policy that has changed, or a right that was taken.
        """
        self._check_policies(function)
        if function.id in self._ending or function.id not in self.ids():
            raise FunctionNotFound(f"Function {function.name} doesn't exist")
        token = (PREFIXES[FUNCTION] + secret_bytes(32).hex()).encode()
        self._tokens[token] = function
        return token

    def shut_out(self, token: bytes) -> None:
        """Withdraw a token: its process has ended."""
        del self._tokens[token]
        self.withdrawals.happened()
        self._changed()

    def is_let_in(self, token: bytes) -> bool:
        """Whether a token that a client has logged in with still counts."""
        return token in self._tokens

    def speaking(self, token: bytes) -> Function:
        """The function whose process shows this token.  Raises AuthenticationFailed if none does."""
        for known, function in self._tokens.items():
            if hmac.compare_digest(known, token):
                return function
        raise AuthenticationFailed("no process of a function that runs has this token")

    def now_ms(self) -> int:
        """The time of what is noted of an instance."""
        return self._clock.now_ms()

    async def wait_for_change(self, wait_s: float) -> None:
        """Return at the next change of a function, or after `wait_s`."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(changed)
        timer = self._clock.call_later(wait_s, _wake, changed)
        try:
            await changed
        finally:
            timer.cancel()
            self._waiting.discard(changed)

    # inside

    def _check_policies(self, function: Function) -> None:
        """Raises InvalidFunction if a function could not keep its guarantee.

        The owner's right comes first: only a caller that may use a topic may learn its policies.
        """
        output = function.config.get("output")
        if function.config.get("processingGuarantees") != EFFECTIVELY or output is None:
            return
        if not self._may_write(function, output):
            raise InvalidFunction("EFFECTIVELY_ONCE needs the right to write to the output's topic")
        if not self._policies_of(TopicName.parse(output)).deduplication:
            raise InvalidFunction(
                "EFFECTIVELY_ONCE needs deduplication of the output's topic: pulsar-admin namespaces set-deduplication"
                " --enable turns it on"
            )

    def _require_enabled(self) -> None:
        if not self._enabled:
            raise FunctionsDisabled("this server runs no functions: functionsWorkerEnabled is false")

    def _changed(self) -> None:
        for changed in self._waiting:
            _wake(changed)


def _wake(changed: asyncio.Future[None]) -> None:
    if not changed.done():
        changed.set_result(None)
