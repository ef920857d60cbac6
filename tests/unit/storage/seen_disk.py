"""A disk in memory that tells what was done with its files."""

from pathlib import Path

from magnetar.testing.disk import CrashDisk, CrashFile


class SeenFile(CrashFile):
    @property
    def name(self) -> str:
        """The one that it has now."""
        names = self._disk._names.items()
        return next((path.name for path, inode in names if inode is self._inode), self._path.name)

    def sync(self) -> None:
        super().sync()
        assert isinstance(self._disk, SeenDisk)
        self._disk.synced.append(self.name)

    def close(self) -> None:
        super().close()
        assert isinstance(self._disk, SeenDisk)
        self._disk.opened.remove(self)


class SeenDisk(CrashDisk):
    """Notes how files are opened, which of them stay open, and what is synced in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.flags: dict[str, tuple[bool, bool]] = {}
        """By name, as it was opened last: direct, and with synced writes."""
        self.opened: list[SeenFile] = []
        """And not closed."""
        self.synced: list[str] = []
        """Files and directories; synced writes are not among them."""

    def open(
        self, path: Path, *, create: bool = False, direct: bool = False, sync_writes: bool = False
    ) -> CrashFile:
        inode = super().open(path, create=create)._inode
        file = SeenFile(self, path, inode, direct=direct, sync_writes=sync_writes)
        self.flags[path.name] = (direct, sync_writes)
        self.opened.append(file)
        return file

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.synced.append(path.name)

    def durable(self, path: Path) -> bytes:
        """What a loss of power would leave of a file, whatever it leaves of others."""
        return bytes(self._durable_names[path].durable)

    @property
    def still_open(self) -> list[str]:
        """Their names."""
        return [file.name for file in self.opened]
