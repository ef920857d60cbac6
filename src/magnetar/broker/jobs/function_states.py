"""What functions keep of keys: a counter or bytes, with a version.  Stored::

    /function-state/<id of the function>/<key, hexadecimal>

A change is durable before its answer, so what an instance learns of a counter stays true after a crash.
"""

import base64
import json
from collections.abc import Callable
from typing import Any, Final

from magnetar.broker.jobs.errors import FunctionNotFound, InvalidFunction
from magnetar.broker.jobs.function_model import Function
from magnetar.broker.jobs.model import Kept
from magnetar.metadata.store import ANY_VERSION, Delete, MetadataStore

STATE_ROOT: Final = "/function-state/"
KEY_BYTES_MAX: Final = 500
VALUE_BYTES_MAX: Final = 64 << 10
KEYS_MAX: Final = 100_000  # of one function
_INT64: Final = 1 << 63


class FunctionStates:
    """The state of all functions.  The caller makes one change at a time; changes raise MetadataError."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._known: dict[str, dict[str, tuple[int, int]]] = {}  # by function and key, version and bytes
        self._bytes: dict[str, int] = {}  # by function

    async def load(self) -> None:
        for path, stored in await self._metadata.scan(STATE_ROOT):
            self._note(path.removeprefix(STATE_ROOT).partition("/")[0], len(stored.value))

    def bytes_of(self, function: Function) -> int:
        return self._bytes.get(function.id, 0)

    async def get(self, function: Function, key: str) -> Kept:
        """What is kept of a key.  Raises FunctionNotFound if nothing is."""
        stored = await self._metadata.get(_path(function, key))
        if stored is None:
            raise FunctionNotFound(f"key '{key[:100]}' doesn't exist.")
        document = json.loads(stored.value)
        data = document.get("bytes")
        return Kept(
            None if data is None else base64.b64decode(data), document.get("number"), document["version"]
        )

    async def number(self, function: Function, key: str) -> int:
        """What a counter is; 0 if there is none."""
        try:
            return (await self.get(function, key)).number or 0
        except FunctionNotFound:
            return 0

    async def put(
        self,
        function: Function,
        key: str,
        data: bytes | None,
        number: int | None,
        check_room: Callable[[int], None],
    ) -> None:
        """Keep bytes or a counter.  Raises InvalidFunction, and what `check_room` raises of so many bytes more."""
        if data is not None and len(data) > VALUE_BYTES_MAX:
            raise InvalidFunction(f"a value of a function's state has at most {VALUE_BYTES_MAX} bytes")
        if number is not None and not -_INT64 <= number < _INT64:
            raise InvalidFunction("a counter of a function has 64 bits")
        known = await self._keys(function)
        if key not in known and len(known) >= KEYS_MAX:
            raise InvalidFunction(f"a function keeps at most {KEYS_MAX} keys")
        version, before = known.get(key, (-1, 0))
        version += 1
        document: dict[str, Any] = {"version": version}
        if data is not None:
            document["bytes"] = base64.b64encode(data).decode()
        if number is not None:
            document["number"] = number
        content = json.dumps(document).encode()
        check_room(len(content) - before)
        await self._metadata.put(_path(function, key), content)
        known[key] = version, len(content)
        self._note(function.id, len(content) - before)

    async def drop(self, function: Function, key: str) -> None:
        """Forget a key, which may be none."""
        known = await self._keys(function)
        await self._metadata.delete(_path(function, key))
        self._note(function.id, -known.pop(key, (0, 0))[1])

    async def deletions(self, function: Function) -> list[Delete]:
        """The steps that delete all that the function keeps."""
        stored = await self._metadata.scan(f"{STATE_ROOT}{function.id}/")
        return [Delete(path, ANY_VERSION) for path, _ in stored]

    def forget(self, function: Function) -> None:
        """The function has been deleted, with all that it kept."""
        self._known.pop(function.id, None)
        self._bytes.pop(function.id, None)

    def _note(self, function_id: str, growth: int) -> None:
        self._bytes[function_id] = self._bytes.get(function_id, 0) + growth

    async def _keys(self, function: Function) -> dict[str, tuple[int, int]]:
        known = self._known.get(function.id)
        if known is None:
            prefix = f"{STATE_ROOT}{function.id}/"
            known = self._known[function.id] = {
                bytes.fromhex(path.removeprefix(prefix)).decode(): (
                    json.loads(stored.value)["version"],
                    len(stored.value),
                )
                for path, stored in await self._metadata.scan(prefix)
            }
        return known


def _path(function: Function, key: str) -> str:
    encoded = key.encode("utf-8", "replace")
    if not 0 < len(encoded) <= KEY_BYTES_MAX:
        raise InvalidFunction(f"a key of a function's state has 1 to {KEY_BYTES_MAX} bytes")
    return f"{STATE_ROOT}{function.id}/{encoded.hex()}"
