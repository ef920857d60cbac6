"""Where the classes of a function come from: a file, or an archive of files.

    NAME.py    the module NAME
    NAME.zip   modules at its top, or below NAME/src or src
    NAME.whl   the packages of a wheel; what it requires has to be installed already

A class is named by its module and its name; a name without a dot is a module's with a function `process`.
"""

import importlib
import inspect
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

UNPACKED_BYTES_MAX: Final = 256 << 20
_OWN_SERDES: Final = ("serde.", "pulsar.functions.serde.")
_SOURCES: Final = "src"
# What zipfile raises for damage, for a password, for an unknown compression, and for names that no file can have.
_UNREADABLE: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError)


class CodeError(Exception):
    """The code of a function cannot be used; one sentence."""


class Callee(NamedTuple):
    """What is called for each message."""

    call: Callable[..., Any]
    takes_context: bool


def open_code(file: Path) -> None:
    """Let modules of this file be imported.  Raises CodeError."""
    folder = file.parent
    if file.suffix != ".py":
        folder = folder / "unpacked"
        try:
            with zipfile.ZipFile(file) as archive:
                if sum(one.file_size for one in archive.infolist()) > UNPACKED_BYTES_MAX:
                    raise CodeError(
                        f"{file.name} has more than {UNPACKED_BYTES_MAX} bytes when it is unpacked"
                    )
                archive.extractall(folder)
        except _UNREADABLE:
            raise CodeError(f"{file.name} is no archive of the zip format that can be unpacked") from None
        for inner in (folder / file.stem / _SOURCES, folder / _SOURCES):
            if inner.is_dir():
                folder = inner
                break
    sys.path.insert(0, str(folder))


def function_of(class_name: str) -> Callee:
    """Raises CodeError, and what the function's own module raises."""
    found = named(class_name)
    if inspect.isclass(found):
        made: Any = found()
        return Callee(made.process, takes_context=True)
    if inspect.ismodule(found):
        found = getattr(found, "process", None)
    if not callable(found):
        raise CodeError(f"{class_name} is neither a class nor a function")
    return Callee(found, takes_context=False)


def serde_of(class_name: str) -> Any:
    """A new object of a class of serdes; Pulsar's own if none is named.  Raises as `function_of`."""
    from pulsar.functions import serde

    for prefix in _OWN_SERDES:
        own = getattr(serde, class_name.removeprefix(prefix), None) if class_name.startswith(prefix) else None
        if own is not None:
            return own()
    return named(class_name)() if class_name else serde.IdentitySerDe()


def named(class_name: str) -> Any:
    """What a module of the code has by this name.  Raises as `function_of`."""
    module, _, name = class_name.rpartition(".")
    if not module:
        return importlib.import_module(class_name)
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise CodeError(f"the module {module} has no {name}") from None
