"""What a function's process keeps of the machine's files: Python, the system's programs and libraries, its own folder.

The process runs under the server's account, and the server's files do not belong to the function's owner.  With the key
that signs tokens, or with a segment, a function could do what its owner may not.  So the runner gives them up before it
imports a user's code (`base/landlock.py`).
"""

import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import magnetar
from magnetar.base import landlock

_LIBRARIES: Final = "LD_LIBRARY_PATH"
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/proc", "/sys")
# Of /etc, what programs need to find names, times and authorities; not what services keep there.
_ETC: Final = (
    "alternatives",
    "ca-certificates",
    "gai.conf",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
_DEVICES: Final = ("/dev/full", "/dev/random", "/dev/urandom", "/dev/zero")
_NULL: Final = Path("/dev/null")


def confine(own: Path, readable: Collection[Path], hidden: Path) -> bool:
    """Keep `own`, the folder of the code, and what all functions may read: `readable` are folders of the operator's.

    Nothing else in `hidden`, the server's data folder, can be read.  Returns whether the kernel can do it.

    Raises:
        OSError: it can, and refuses.
    """
    return landlock.confine([*_pythons(), *map(Path, _shared()), *readable], [own, _NULL], hidden)


def _pythons() -> Iterator[Path]:
    """From where modules are imported, also those that this process has not imported yet."""
    yield from map(Path, {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix})
    yield from (Path(one) for one in (*sys.path, *magnetar.__path__) if os.path.isabs(one))


def _shared() -> Iterator[str]:
    yield from (*_SYSTEM, *_DEVICES)
    yield from (f"/etc/{name}" for name in _ETC)
    yield from (one for one in os.environ.get(_LIBRARIES, "").split(os.pathsep) if os.path.isabs(one))
