"""Where tables of pipelines may lie: below folders, and below URLs of object stores, that the server's settings name.

Any client that reaches the HTTP port can declare a pipeline, and the worker writes and removes files with the rights of
its account.  The server looks at a path when it is declared, the worker once more at each start, as links may have
changed.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from magnetar.base.errors import ConfigError

SETTING: Final = "pipelines.table.roots"
_SCHEME_END: Final = "://"


@dataclass(frozen=True, slots=True)
class TableRoots:
    """`folders` are absolute; relative paths of tables are below the first one.  `urls` end with a slash."""

    folders: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @classmethod
    def of(cls, roots: Iterable[str]) -> Self:
        """Of folders and URLs; ConfigError for what is neither."""
        folders, urls = [], []
        for root in roots:
            if _SCHEME_END in root:
                urls.append(_plain_url(root, "a root of tables").rstrip("/") + "/")
            elif Path(root).is_absolute():
                folders.append(root)
            else:
                raise ConfigError(
                    f"{SETTING}: {root[:200]!r} must be an absolute path, or a URL such as s3://bucket/"
                )
        return cls(tuple(folders), tuple(urls))

    def resolve(self, path: str) -> str:
        """The absolute path or URL of a table, without links and `..`.

        Raises:
            ConfigError: it lies outside of all roots, or is one.
        """
        scheme, separator, _ = path.partition(_SCHEME_END)
        if separator and scheme.lower() != "file":
            url = _plain_url(path, "path")
            if not any(url.startswith(root) and url != root for root in self.urls):
                raise ConfigError(f"path: no table may be at {_shown(path)}: add its bucket to {SETTING}")
            return url
        local = unquote(urlsplit(path).path) if separator else path
        if "\0" in local:
            raise ConfigError("path: no file's name has a zero byte in it")
        if self.folders:
            resolved = Path(os.path.realpath(Path(self.folders[0]) / local))
            for root in self.folders:
                if Path(os.path.realpath(root)) in resolved.parents:
                    return str(resolved)
        where = f"below {self.folders[0]}" if self.folders else "in a folder of this server"
        raise ConfigError(
            f"path: a table must be {where}, or below a folder of {SETTING}, not at {path[:200]}"
        )


def _plain_url(url: str, what: str) -> str:
    """A URL that means what it looks like: nothing in it is decoded, climbs up, or names a user."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    plain = not (parts.query or parts.fragment or "@" in parts.netloc or "%" in url or "\\" in url)
    climbs = any(part in (".", "..") for part in parts.path.split("/"))
    if (
        not parts.netloc
        or not plain
        or climbs
        or "//" in parts.path
        or any(ord(char) <= 0x20 for char in url)
    ):
        raise ConfigError(
            f"{what}: {_shown(url)} must be a URL such as s3://bucket/table, without user, query and .."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _shown(url: str) -> str:
    """Without what may be secret."""
    parts = url.partition(_SCHEME_END)
    return f"{parts[0]}://{parts[2].rpartition('@')[2].partition('?')[0]}"[:200]
