"""Messages that a target never takes, as lines of JSON in a file for each topic of a target.

    {"topic": "persistent://public/orders/a", "region": "us-west1", "reason": "...", "timestampMs": 1700000000000,
     "key": "...", "value": "...", "headers": [["name", "..."]]}

Key, value and the values of headers are in base64, or null.  What cannot be read at all has `entry` in place of them:
the bytes that the broker sent.  The file has a message before the broker gets its receipt, also after a power cut.
Without a folder for them, no message can become a dead letter: the topic waits until its target takes the message.
"""

import hashlib
import json
import os
from base64 import b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from magnetar.base.private import FILE_MODE, sync_folder
from magnetar.replicators.errors import TargetUnavailable
from magnetar.replicators.provider import ReplicatedRecord

_LOCAL_CHARS_MAX: Final = 100  # a file's name may have 255; each line has the whole name
_DIGEST_CHARS: Final = 16

Poison = Sequence[tuple[ReplicatedRecord, str]]
Unreadable = Sequence[tuple[memoryview, str]]


class DeadLetters:
    """The dead letters of one topic at one target; one thread uses it.  `folder` is None if there is none."""

    def __init__(self, folder: Path | None, topic: str, region: str) -> None:
        self._folder = folder
        self._said = {"topic": topic, "region": region}
        local = topic.rpartition("/")[2][:_LOCAL_CHARS_MAX]
        digest = hashlib.sha256(topic.encode()).hexdigest()[:_DIGEST_CHARS]
        self._file = None if folder is None else folder / f"{region}.{local}-{digest}.jsonl"

    def write(self, poison: Poison, unreadable: Unreadable) -> None:
        """Store them; they are on the disk when this returns.

        Raises:
            TargetUnavailable: they cannot be stored; the text has the reason of the first one.
        """
        if not poison and not unreadable:
            return
        reason = poison[0][1] if poison else unreadable[0][1]
        if self._folder is None or self._file is None:
            raise TargetUnavailable(
                f"a message of {self._said['topic']} cannot be sent, because {reason}: give --dead-letters a folder"
            )
        try:
            self._append(b"".join(self._lines(poison, unreadable)))
        except OSError as error:
            raise TargetUnavailable(f"dead letters cannot be stored: {error.strerror}") from error

    def _append(self, lines: bytes) -> None:
        assert self._folder is not None
        assert self._file is not None
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
        with open(descriptor, "ab") as file:
            if file.tell() and not _ends_a_line(self._file):  # a crash has cut the last line
                file.write(b"\n")
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self._folder)

    def _lines(self, poison: Poison, unreadable: Unreadable) -> Iterable[bytes]:
        for record, reason in poison:
            yield self._line(
                reason,
                timestampMs=record.timestamp_ms,
                key=_text(record.key),
                value=_text(record.value),
                headers=[[name, _text(value)] for name, value in record.headers],
            )
        for entry, reason in unreadable:
            yield self._line(reason, entry=_text(bytes(entry)))

    def _line(self, reason: str, **content: Any) -> bytes:
        return json.dumps({**self._said, "reason": reason, **content}).encode() + b"\n"


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()
