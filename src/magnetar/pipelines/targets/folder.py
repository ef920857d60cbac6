"""The place of a table's files: a directory of this machine, or a prefix of an object store (s3://, gs://, az://).

Both have six operations: write a file, write one only if there is none, read, list, move, remove.  A file is either
complete or does not exist.  On a local disk, the results of `put_new`, `sync` and `move` survive a loss of power once
they return; object stores promise that themselves.

Names are relative, with slashes.  Options of object stores have deltalake's names (`AWS_REGION`, `AWS_ENDPOINT_URL`,
...), so that one set serves both.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from magnetar.pipelines.connector.options import OptionError

_CLIENT_OPTIONS: Final = {
    "allow_http": "allow_http",
    "allow_invalid_certificates": "allow_invalid_certificates",
}
_PREFIXES: Final = ("aws_", "google_", "azure_", "")


class Found(NamedTuple):
    """A file; `modified_s` is seconds since 1970."""

    name: str
    size: int
    modified_s: float


class Folder(Protocol):
    """See the module's text.  Methods raise OSError, or obstore's own errors."""

    @property
    def url(self) -> str: ...

    def new_file(self, name: str) -> AbstractContextManager[Path]:
        """A context manager that yields the path of a local file to write; afterwards the file is `name`, unless the
        block raises.
        """

    def put_new(self, name: str, data: bytes) -> bool:
        """Write a small file unless it exists; returns whether it did not."""

    def read(self, name: str) -> bytes | None:
        """The content; None if the file does not exist."""

    def list(self, prefix: str) -> Iterator[Found]:
        """The files in the directory `prefix` and below; all files for an empty one."""

    def move(self, source: str, target: str) -> bool:
        """Move `source` to `target`, replacing that; False if there is no `source`."""

    def exists(self, name: str) -> bool: ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove those of the files that exist."""

    def remove_directory(self, prefix: str) -> None:
        """Remove all files in the directory `prefix` and below."""

    def sync(self, names: Iterable[str]) -> None:
        """Make files that another process wrote safe from a loss of power."""


def open_folder(path: str, options: Mapping[str, str] | None = None) -> Folder:
    """The folder at a path or URL.  Raises OptionError if no store has such a URL."""
    if "://" not in path:
        return LocalFolder(Path(path).absolute())
    parts = urlsplit(path)
    if parts.scheme == "file":
        return LocalFolder(Path(unquote(parts.path)))
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    config: dict[str, Any] = {}
    client: dict[str, Any] = {}
    for key, value in (options or {}).items():
        name = key.lower()
        plain = next(name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix))
        if plain in _CLIENT_OPTIONS:
            client[_CLIENT_OPTIONS[plain]] = value.lower() in ("true", "1", "yes")
        else:
            config[key] = value
    try:
        store = from_url(path, config=config or None, client_options=client or None)  # type: ignore[arg-type]
    except (BaseError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise OptionError(f"path: {path} cannot be opened: {reason}; correct it or storage_options") from None
    return ObjectFolder(path.rstrip("/"), store)


@dataclass(frozen=True, slots=True)
class LocalFolder:
    root: Path

    @property
    def url(self) -> str:
        return str(self.root)

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield path
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        self.sync([name])

    def put_new(self, name: str, data: bytes) -> bool:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix="_", suffix=".new") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            try:
                os.link(file.name, path)
            except FileExistsError:
                return False
        _sync_directory(path.parent)
        return True

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> Iterator[Found]:
        for directory, _, names in os.walk(self.root / prefix):
            for name in sorted(names):
                path = Path(directory, name)
                with suppress(FileNotFoundError):
                    stat = path.stat()
                    yield Found(path.relative_to(self.root).as_posix(), stat.st_size, stat.st_mtime)

    def move(self, source: str, target: str) -> bool:
        path = self.root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            (self.root / source).replace(path)
        except FileNotFoundError:
            return False
        _sync_directory(path.parent)
        return True

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.root / name).unlink(missing_ok=True)

    def remove_directory(self, prefix: str) -> None:
        shutil.rmtree(self.root / prefix, ignore_errors=True)

    def sync(self, names: Iterable[str]) -> None:
        directories = set()
        for name in names:
            path = self.root / name
            _sync(path, os.O_RDONLY)
            directories.update([path.parent, *(one for one in path.parents if self.root in one.parents)])
        for directory in directories:
            _sync_directory(directory)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    url: str
    store: Any  # of the type of obstore

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        import obstore

        # Uploaded as a whole when it is complete, so every object is complete.
        directory = Path(tempfile.mkdtemp(prefix="magnetar-table-"))
        try:
            path = directory / "part"
            yield path
            obstore.put(self.store, name, path)
        finally:
            shutil.rmtree(directory)

    def put_new(self, name: str, data: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            obstore.put(self.store, name, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def read(self, name: str) -> bytes | None:
        import obstore

        try:
            return bytes(obstore.get(self.store, name).bytes())
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> Iterator[Found]:
        import obstore

        for page in obstore.list(self.store, prefix.rstrip("/") or None):
            for one in page:
                yield Found(one["path"], one["size"], one["last_modified"].timestamp())

    def move(self, source: str, target: str) -> bool:
        import obstore

        try:
            obstore.rename(self.store, source, target)
        except FileNotFoundError:
            return False
        return True

    def exists(self, name: str) -> bool:
        import obstore

        try:
            obstore.head(self.store, name)
        except FileNotFoundError:
            return False
        return True

    def remove_directory(self, prefix: str) -> None:
        self.remove([found.name for found in self.list(prefix)])

    def remove(self, names: Iterable[str]) -> None:
        import obstore

        for name in names:
            with suppress(FileNotFoundError):
                obstore.delete(self.store, name)

    def sync(self, names: Iterable[str]) -> None:
        """Does nothing: an object that was written is safe."""
