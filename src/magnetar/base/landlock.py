"""Landlock of Linux (since 5.13): a process gives up all files but those below some paths, and so do its children.

It cannot take them back, also not as root.  What this module asks of Landlock depends on the kernel's version of it:

| version | Linux | also |
|---|---|---|
| 1 | 5.13 | reading, writing, making, removing and running files |
| 2, 3 | 5.19, 6.2 | moving files between folders; cutting them |
| 6 | 6.12 | signals, and abstract sockets, to processes that have not given up the same |

From the first version on, such a process cannot look into others (`ptrace`, `/proc/PID/environ`, `/proc/PID/mem`); root
could, by a capability, so all of these are given up, too.  It can still ask for the mode, the owner and the times of
any file, change these of its own account's files, and connect to sockets.  Specification: https://docs.kernel.org/userspace-api/landlock.html.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

# The same numbers on all processors.
_CREATE_RULESET: Final = ctypes.c_long(444)
_ADD_RULE: Final = ctypes.c_long(445)
_RESTRICT_SELF: Final = ctypes.c_long(446)
_ASK_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_NO_NEW_PRIVILEGES: Final = 38  # of prctl
_CAPABILITIES_VERSION: Final = 0x20080522

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_MAKE_DEVICE: Final = 1 << 6 | 1 << 11
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE: Final = ~(_MAKE_DEVICE | _IOCTL_DEVICE)  # a disk's device has the files of all accounts
_KINDS: Final = (0, 13, 14, 15, 15, 16)  # of access, that each version knows
_VERSION_OF_NETWORK: Final = 4
_VERSION_OF_SCOPES: Final = 6
_SCOPES: Final = 0b11  # abstract sockets, signals


def version() -> int:
    """The kernel's version of Landlock; 0 if it has none, or if its operator has turned Landlock off."""
    return max(_call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_ASK_VERSION)), 0)


def confine(readable: Collection[Path], writable: Collection[Path], hidden: Path) -> bool:
    """Give up all files but those below `readable` and `writable`, for good; call it before there are threads.

    Paths that do not exist are passed over.  If `hidden` is below a readable path, the files in it are given up all the
    same, except for those below a path that is in it and named here.  Returns whether the kernel can do all this.

    Raises:
        OSError: it can, and refuses.
    """
    known = version()
    if not known:
        return False
    handled = (1 << _KINDS[min(known, len(_KINDS) - 1)]) - 1
    words = [handled]  # struct landlock_ruleset_attr, which has grown
    if known >= _VERSION_OF_NETWORK:
        words.append(0)
    if known >= _VERSION_OF_SCOPES:
        words.append(_SCOPES)
    content = struct.pack(f"={len(words)}Q", *words)
    rules = _checked(_call(_CREATE_RULESET, content, ctypes.c_size_t(len(content)), ctypes.c_uint(0)))
    try:
        for path in readable:
            for access, one in _around(path.resolve(), hidden.resolve()):
                _allow(rules, one, handled & access)
        for path in writable:
            _allow(rules, path, handled & _WRITE)
        library = ctypes.CDLL(None, use_errno=True)
        _checked(library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _checked(library.capset(struct.pack("=Ii", _CAPABILITIES_VERSION, 0), bytes(24)))
        _checked(_call(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint(0)))
    finally:
        os.close(rules)
    return True


def _around(path: Path, hidden: Path) -> Iterator[tuple[int, Path]]:
    """What may be done below which paths, so that all below `path` is readable but `hidden`.

    Its folders may be listed, as Python lists those from which it imports; so the names in `hidden` can be seen.
    """
    if not hidden.is_relative_to(path):
        yield _READ, path
    elif path != hidden:
        yield _READ_DIR, path
        for one in path.iterdir():
            if not one.is_symlink():  # it is where it leads to that counts
                yield from _around(one, hidden)


def _allow(rules: int, path: Path, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # there is nothing to allow
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= _OF_FILES
        content = struct.pack("=Qi", access, place)  # struct landlock_path_beneath_attr
        _checked(
            _call(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), content, ctypes.c_uint(0))
        )
    finally:
        os.close(place)


def _call(*arguments: object) -> int:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    found: int = call(*arguments)
    return found


def _checked(answer: int) -> int:
    """Raises OSError."""
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
