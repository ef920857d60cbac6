"""The databases that pipelines may use, and their drivers: what the folder `jdbc` in the worker's data folder has.

    jdbc/postgresql-42.7.8.jar   drivers of JDBC
    jdbc/databases.toml          the databases, by names:

        [orders]
        url = "jdbc:postgresql://db.example.com/orders"
        driver = "postgresql-42.7.8.jar"
        user = "magnetar"
        password = "..."

A pipeline names a database and never a URL.  By a URL most drivers read and write files, and some run scripts or load
classes, with the rights of the worker's account.  So the owner of that account writes the URLs.

Spark loads the drivers when it starts.
"""

import re
import tomllib
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from magnetar.base.config import closest
from magnetar.base.errors import ConfigError

FOLDER: Final = "jdbc"
FILE: Final = "databases.toml"
_SERVICE: Final = "META-INF/services/java.sql.Driver"
_JAR: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,150}\.jar")
_KEYS: Final = ("url", "driver", "class", "user", "password")
_URL_BEGINS: Final = "jdbc:"


@dataclass(frozen=True, slots=True)
class Database:
    """A database that pipelines may use; `driver` is the class of its driver."""

    name: str
    url: str = field(repr=False)
    driver: str
    user: str = ""
    password: str = field(default="", repr=False)

    def options(self, user: str | None, password: str | None) -> dict[str, str]:
        """Spark's options for it, with the pipeline's user if it has one."""
        named = (user, password or "") if user else (self.user, self.password)
        login = {name: value for name, value in zip(("user", "password"), named, strict=True) if value}
        return {"url": self.url, "driver": self.driver, **login}


@dataclass(frozen=True, slots=True)
class Databases:
    """What the folder has now; it need not be there."""

    folder: Path

    def jars(self) -> list[str]:
        """The drivers, for Spark's start."""
        with suppress(OSError):
            return sorted(str(one) for one in self.folder.iterdir() if _JAR.fullmatch(one.name))
        return []

    def find(self, name: str) -> Database:
        """Raises ConfigError: one sentence that says what the owner of the worker has to write where."""
        known = self._read()
        found = known.get(name)
        if not isinstance(found, dict):
            meant = closest(name, known)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known) or 'none'}"
            raise ConfigError(f"{self._file} has no database {name[:100]!r}: {hint}")
        for key, value in found.items():
            if key not in _KEYS or not isinstance(value, str):
                raise ConfigError(
                    f"{self._file}: {key} of {name} must be one of {', '.join(_KEYS)}, and a text"
                )
        url = found.get("url", "")
        if not url.startswith(_URL_BEGINS):
            raise ConfigError(f"{self._file}: url of {name} must begin with {_URL_BEGINS}")
        driver = found.get("class") or self._class_of(name, found.get("driver", ""))
        return Database(name, url, driver, found.get("user", ""), found.get("password", ""))

    @property
    def _file(self) -> Path:
        return self.folder / FILE

    def _read(self) -> Mapping[str, Any]:
        try:
            return tomllib.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(
                f"no pipeline can use a database here: name it in {self._file}, and put its driver beside that file"
            ) from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._file} cannot be read: {error}") from None

    def _class_of(self, name: str, jar: str) -> str:
        """The class of the driver in a jar of the folder, which the jar names."""
        if _JAR.fullmatch(jar) is None:
            raise ConfigError(f"{self._file}: driver of {name} must be the name of a jar beside that file")
        try:
            with zipfile.ZipFile(self.folder / jar) as opened:
                lines = opened.read(_SERVICE).decode().splitlines()
        except FileNotFoundError:
            raise ConfigError(f"{self._file}: there is no {jar} beside it, which {name} needs") from None
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            raise ConfigError(
                f"{self._file}: {jar} does not say which driver it has: set class of {name}"
            ) from None
        named = [line.partition("#")[0].strip() for line in lines]
        found = next((one for one in named if one), None)
        if found is None:
            raise ConfigError(f"{self._file}: {jar} does not say which driver it has: set class of {name}")
        return found
