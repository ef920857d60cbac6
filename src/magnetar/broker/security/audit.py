"""The audit log: which callers change what, and which rights the server refuses to which callers.

Use cases write it, so all doors do.  There is one line for each change of state that a caller asks for, with its
outcome, for each refused right, and for logins.  Work on messages that changes nothing else has none (producing,
fetching, acknowledging, commits of offsets by members): a record passes here only if it is refused.

Changes are never dropped while the sink takes them, and are handed over before their callers get an answer.  Refusals
and logins are limited (`audit_repeats.py`).  No line has a payload, a key of a message, a password, a token or any
value that may be one.  The code that makes a line chooses what it contains.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Protocol

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError
from magnetar.broker.security.audit_line import Change, Event, Key, Result, audit_line
from magnetar.broker.security.audit_repeats import Repeats
from magnetar.broker.security.errors import NotAuthorized
from magnetar.broker.security.model import ANONYMOUS, USER, Caller, Operation, Resource

_AT_ONCE: Final = 64  # lines that are made before others have their turn
BUG: Final = "INTERNAL_ERROR"  # as the error of a change that failed by a fault of the server's own


class AuditSink(Protocol):
    """Where lines go.  It does not wait, and does no I/O on the loop."""

    def put(self, line: bytes, *, is_change: bool) -> bool:
        """Take a line, after those that came before it; false if there is no room."""
        ...

    async def handed_over(self) -> None:
        """Returns when the operating system has the lines that were taken, or cannot have them now."""
        ...


class Audit:
    """See the module's text.  Without a `sink` nothing is written; `with_logins`: accepted logins are written, too."""

    def __init__(self, clock: Clock, sink: AuditSink | None = None, *, with_logins: bool = False) -> None:
        self._clock = clock
        self._sink = sink
        self._with_logins = with_logins
        self._repeats = Repeats(clock, partial(self._write, is_change=False))

    # --- what clients can cause without a right ----------------------------------------------------------------------

    def refused(self, caller: Caller, operation: Operation, resource: Resource) -> None:
        """A caller does not have the right to do this."""
        if self._sink is not None:
            self._repeats.add(
                {
                    **_head(Event.REFUSAL, Result.REFUSED, caller),
                    Key.OPERATION: operation.name,
                    **_what(resource),
                }
            )

    def login_refused(self, caller: Caller, method: str, error: str, reason: str, user: str = "") -> None:
        """A client's login is refused.  `caller` is who it was until then.  `user` is a name that the server knows:
        any other name could be a password in the wrong field.
        """
        if self._sink is not None:
            fields = _head(Event.LOGIN, Result.REFUSED, caller, error)
            if user or caller.principal == ANONYMOUS:
                fields[Key.PRINCIPAL] = user and f"{USER}:{user}"
            self._repeats.add({**fields, Key.METHOD: method, Key.REASON: reason})

    def logged_in(self, caller: Caller, method: str) -> None:
        """A client has logged in as `caller`."""
        if self._with_logins and self._sink is not None:
            self._repeats.add({**_head(Event.LOGIN, Result.ACCEPTED, caller), Key.METHOD: method})

    # --- changes -----------------------------------------------------------------------------------------------------

    def changed(
        self,
        caller: Caller,
        change: Change,
        resource: Resource,
        details: Mapping[str, object],
        result: Result = Result.DONE,
        error: str = "",
    ) -> None:
        """A caller that has the right to it has asked for a change; await `handed_over` afterwards."""
        if self._sink is None:
            return
        fields = _head(Event.CHANGE, result, caller, error)
        fields |= {Key.OPERATION: change.value, **_what(resource)}
        if not self._write({**fields, Key.DETAILS: details}, is_change=True):
            self._repeats.drop()

    def changed_often(self, caller: Caller, change: Change, resource: Resource) -> None:
        """As `changed`, for changes that programs make all the time and people also make: equal ones are counted."""
        if self._sink is not None:
            fields = _head(Event.CHANGE, Result.DONE, caller)
            self._repeats.add({**fields, Key.OPERATION: change.value, **_what(resource)})

    async def handed_over(self) -> None:
        """As `AuditSink.handed_over`."""
        if self._sink is not None:
            await self._sink.handed_over()

    def close(self) -> None:
        """Write what was counted: the server stops."""
        self._repeats.close()

    def _write(self, fields: Mapping[str, object], *, is_change: bool) -> bool:
        return self._sink is not None and self._sink.put(
            audit_line(self._clock.now_ms(), fields), is_change=is_change
        )


class Recording:
    """What is done within it is a change, which has its line when that ends, however it does:

        async with access.change(caller, Operation.DELETE, resource, Change.TOPIC_DELETE):
            await ...

    A refusal within it has a line already, and gets no other.  `details` may be added to until the end.
    """

    __slots__ = ("_audit", "_caller", "_change", "_error", "_is_none", "_resource", "details")

    def __init__(
        self, audit: Audit, caller: Caller, change: Change, resource: Resource, details: dict[str, object]
    ) -> None:
        self._audit = audit
        self._caller = caller
        self._change = change
        self._resource = resource
        self._error = ""
        self._is_none = False
        self.details = details

    def is_none(self) -> None:
        """The change has succeeded, and has changed nothing that the log would report."""
        self._is_none = True

    def fails(self, code: str) -> None:
        """The answer is an error that is not an exception."""
        self._error = code

    def __enter__(self) -> "Recording":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, NotAuthorized) or (self._is_none and error is None):
            return
        result, code = Result.FAILED if self._error else Result.DONE, self._error
        if isinstance(error, asyncio.CancelledError):
            result = Result.UNFINISHED
        elif error is not None:
            result, code = Result.FAILED, error.code if isinstance(error, BrokerError) else BUG
        self._audit.changed(self._caller, self._change, self._resource, self.details, result, code)

    async def __aenter__(self) -> "Recording":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)
        if not isinstance(error, asyncio.CancelledError):
            await self._audit.handed_over()


class Recordings:
    """Several changes in one step: each has its line."""

    def __init__(self, audit: Audit, several: Sequence[Recording]) -> None:
        self._audit = audit
        self._several = several

    async def __aenter__(self) -> None:
        return

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        rest = iter(self._several)
        is_cancelled = isinstance(error, asyncio.CancelledError)
        try:
            for number, one in enumerate(rest, 1):
                one.__exit__(kind, error, trace)
                if number % _AT_ONCE == 0 and not is_cancelled:
                    await asyncio.sleep(0)
        finally:  # also of a request that is given up in between
            for one in rest:
                one.__exit__(kind, error, trace)
        if not is_cancelled:
            await self._audit.handed_over()


def _head(event: Event, result: Result, caller: Caller, error: str = "") -> dict[str, str]:
    origin = caller.origin
    return {
        Key.EVENT: event.value,
        Key.RESULT: result.value,
        Key.ERROR: error,
        Key.PRINCIPAL: str(caller.principal),
        Key.PROXY: origin.proxy,
        Key.HOST: caller.host,
        Key.DOOR: origin.door,
        Key.LISTENER: origin.listener,
        Key.CLIENT: origin.client,
    }


def _what(resource: Resource) -> dict[str, str]:
    return {
        Key.RESOURCE_TYPE: resource.type.value,
        Key.RESOURCE: resource.name,
        Key.TOPIC: resource.topic,
    }
