"""The file of a function's code, stored in parts::

    /function-code/<code>/<part>    at most `CODE_PART_BYTES` each

`code` is an id that is new for each file, so that an instance that starts during an update reads the old file or the
new one.
"""

from dataclasses import replace
from typing import Final

from magnetar.base import randomness
from magnetar.broker.jobs.errors import FunctionNotFound, InvalidFunction
from magnetar.broker.jobs.function_model import Function
from magnetar.metadata.store import ANY_VERSION, Delete, MetadataStore, Put

CODE_ROOT: Final = "/function-code/"
CODE_BYTES_MAX: Final = 8 << 20
CODE_PART_BYTES: Final = 512 << 10


def check_code(code: bytes) -> None:
    """Raises InvalidFunction if no function can have this file."""
    if not 0 < len(code) <= CODE_BYTES_MAX:
        raise InvalidFunction(f"the code of a function must be a file of 1 to {CODE_BYTES_MAX} bytes")


def with_code(function: Function, code: bytes) -> tuple[Function, list[Put]]:
    """The function with this code, and what stores it."""
    count = -(-len(code) // CODE_PART_BYTES)
    placed = replace(function, code=randomness.hex_token(8), code_parts=count)
    return placed, [
        Put(path, code[index * CODE_PART_BYTES : (index + 1) * CODE_PART_BYTES])
        for index, path in enumerate(_paths(placed))
    ]


def code_deletions(function: Function) -> list[Delete]:
    """What deletes its code."""
    return [Delete(path, ANY_VERSION) for path in _paths(function)]


async def read_code(metadata: MetadataStore, function: Function) -> bytes:
    """The file.  Raises FunctionNotFound if an update or a deletion has removed it; MetadataError."""
    parts = [await metadata.get(path) for path in _paths(function)]
    if None in parts:
        raise FunctionNotFound(f"Function {function.name} has other code now")
    return b"".join(one.value for one in parts if one is not None)


def _paths(function: Function) -> list[str]:
    return [f"{CODE_ROOT}{function.code}/{index}" for index in range(function.code_parts)]
