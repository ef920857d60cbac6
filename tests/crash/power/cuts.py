"""Cut the power of a whole server again and again, and hold it to what it has acknowledged.

    python -m tests.crash.power.cuts --rounds 200 --seed 1

A round is one power cut.  A real server runs under the load of `tests.crash.server.lives_load` while `recorder.c`
writes down every call on its files, the journal's and SQLite's alike, and the load what was acknowledged when; it is
killed and started again meanwhile, too.  `RecordedDisk` then makes from the records what the disk may look like if
the power goes behind one of them: all that was synced, and some of the rest.  A server that starts on that must have
what had been acknowledged up to there, and nothing that cannot be (`tests.crash.server.lives`).  Some are recorded in
their turn while they start, and lose their power again.

A failure is one line with the seed; the records and the data folder are kept for it.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from magnetar.testing.server import MagnetarProcess, ServerFailed
from tests.crash.power import trace
from tests.crash.power.disk import Fate, RecordedDisk, SyncWorks
from tests.crash.power.trace import Kind, Record
from tests.crash.server import lives_rounds
from tests.crash.server.killing import TIMEOUT_S, Broken
from tests.crash.server.lives import History, Inspector

CUTS_PER_RECORDING = 12
RUN_SECONDS = (0.3, 1.2)
STARTS_MAX = 3
SECOND_CUT_SHARE = 0.25
COMMAND = [sys.executable, str(Path(__file__).with_name("small_server.py"))]
SETTINGS = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "20"}
PROMISES = ("acked", "stored", "life", "transaction")


def server_on(data_dir: Path, environment: dict[str, str] | None = None) -> MagnetarProcess:
    return MagnetarProcess(
        settings=SETTINGS,
        data_dir=data_dir,
        command=COMMAND,
        environment=environment,
    )


def _goes_on(load: lives_rounds.Load, before: int) -> bool:
    return load.ack_count > before


class Recording:
    """A server under load, from a fresh data folder on; `records` is all that was recorded."""

    def __init__(self, library: Path, directory: Path, choose: random.Random) -> None:
        self.root = directory / "data"
        self.log = directory / "records"
        self.root.mkdir(parents=True)
        server = server_on(self.root, trace.recording(library, self.root, self.log))
        with server:
            lives_rounds.prepare(server)
            load = lives_rounds.Load(server, choose.randrange(1 << 31), str(self.log))
            try:
                for start in range(choose.randint(1, STARTS_MAX)):
                    if start:
                        server.kill()
                        self._note_end()
                        server.start()
                    before = load.ack_count
                    load.wait_until(partial(_goes_on, load, before), "something is acknowledged")
                    time.sleep(choose.uniform(*RUN_SECONDS))
                load.ask("pause")
                trace.mark(self.log, {"paused": True})
            finally:
                load.close()
        self.records = list(trace.read(self.log))
        self._check_complete()

    def disk(self, works: SyncWorks | None = None) -> RecordedDisk:
        return RecordedDisk(self.root) if works is None else RecordedDisk(self.root, works)

    def _note_end(self) -> None:
        disk = self.disk()
        for record in trace.read(self.log):
            play(disk, record)
        trace.mark(self.log, {"ended": disk.unfinished_that_happened()})

    def _check_complete(self) -> None:
        """What the records make must be what the server has left, or something was not seen."""
        disk = self.disk()
        for record in self.records:
            play(disk, record)
        made = self.root.with_name("made")
        disk.write_to(made, Fate.KEPT, random.Random(0))
        found, real = contents(made), contents(self.root)
        assert found.keys() == real.keys(), f"recorded {sorted(found)}, the server left {sorted(real)}"
        different = [name for name in real if found[name] != real[name]]
        assert not different, f"what was recorded is not what the server left in {different}"
        shutil.rmtree(made)


def play(disk: RecordedDisk, record: Record) -> dict[str, Any] | None:
    """Let a record happen; the event if it is a mark of the load."""
    if record.kind is not Kind.MARK:
        disk.happen(record)
        return None
    event = record.event()
    if "ended" in event:
        disk.end_process(event["ended"])
        return None
    return event


def contents(directory: Path) -> dict[str, bytes]:
    """All files, but for SQLite's shared memory, which is not written."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm")
    }


def choose_cuts(records: list[Record], count: int, choose: random.Random) -> list[int]:
    """Behind how many records the power goes: anywhere, or right behind a promise."""
    promises = [
        number + 1
        for number, record in enumerate(records)
        if record.kind is Kind.MARK and any(word in record.event() for word in PROMISES)
    ]
    cuts = [
        choose.choice(promises)
        if promises and choose.random() < 0.6
        else choose.randrange(1, len(records) + 1)
        for _ in range(count)
    ]
    return sorted(cuts)


class Rounds:
    def __init__(self, directory: Path, library: Path, seed: int) -> None:
        self.choose = random.Random(seed)
        self._directory = directory
        self._library = library
        self._acked = 0
        self._cuts = 0
        self._again = 0
        self._compacted = 0

    def run(self, count: int, say: Callable[[str], None]) -> str:
        began = time.monotonic()
        number = 0
        while self._cuts < count:
            number += 1
            recording = Recording(self._library, self._directory / f"recording-{number}", self.choose)
            self.cut(recording, min(CUTS_PER_RECORDING, count - self._cuts))
            shutil.rmtree(self._directory / f"recording-{number}")
            say(f"{self._cuts} cuts, {time.monotonic() - began:.0f} s")
        return (
            f"{self._cuts} power cuts in {number} recordings with {self._acked} records acknowledged, {self._again}"
            f" once more during the start, {self._compacted} records compacted, {time.monotonic() - began:.0f} s:"
            " all kept"
        )

    def cut(self, recording: Recording, count: int) -> None:
        history, disk, done = History(), recording.disk(), 0
        for cut in choose_cuts(recording.records, count, self.choose):
            for record in recording.records[done:cut]:
                event = play(disk, record)
                if event is not None:
                    history.note(event)
            done = cut
            self._cuts += 1
            fate = self.choose.choice((Fate.DROPPED, Fate.TORN, Fate.TORN, Fate.KEPT))
            image = recording.root.with_name(f"cut-{cut}-{self._cuts}")
            disk.write_to(image, fate, self.choose)
            try:
                self._inspect(image, history)
            except (Broken, ServerFailed) as broken:
                raise Broken(
                    f"power cut behind record {cut}, unsynced writes {fate.value}: {broken}"
                ) from None
            shutil.rmtree(image)
        self._acked += history.acked_count

    def _inspect(self, image: Path, history: History) -> None:
        if self.choose.random() < SECOND_CUT_SHARE:
            self._cut_again(image)
        self._compacted += inspect(image, history)

    def _cut_again(self, image: Path) -> None:
        """Start on `image` and cut the power meanwhile, or soon after."""
        self._again += 1
        base, log = image.with_name(image.name + "-base"), image.with_name(image.name + "-records")
        shutil.copytree(image, base)
        with server_on(image, trace.recording(self._library, image, log)) as server:
            server.kill()
        disk = RecordedDisk(image)
        disk.load(base)
        records = list(trace.read(log))
        for record in records[: self.choose.randrange(len(records) + 1)]:
            play(disk, record)
        shutil.rmtree(image)
        shutil.rmtree(base)
        log.unlink()
        disk.write_to(image, self.choose.choice((Fate.DROPPED, Fate.TORN, Fate.TORN)), self.choose)


def inspect(image: Path, history: History, patience_s: float = TIMEOUT_S) -> int:
    """Start a server on `image` and look; `Broken` if it does not keep its promises, `ServerFailed` if it cannot.

    Returns how many records have gone by compaction.
    """
    with server_on(image) as server:
        inspector = Inspector(server.bootstrap, patience_s)
        inspector.inspect(history)
        server.kill()
    return inspector.compacted_count


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="magnetar-power-"))
    command = f"python -m tests.crash.power.cuts --rounds {options.rounds} --seed {seed}"
    print(command, flush=True)
    library = trace.build_recorder(directory)
    if library is None:
        print("needs a C compiler: cc, gcc or clang")
        return 2
    try:
        line = Rounds(directory, library, seed).run(
            options.rounds, lambda each: print(f"  {each}", flush=True)
        )
    except Exception as failure:  # noqa: BLE001 - whatever it was, the line with the seed must come out
        print(f"FAILED {command}: {failure} (data kept in {directory})", flush=True)
        return 1
    shutil.rmtree(directory)
    print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
