"""Flip one bit of a data folder, again and again, and see what a server makes of it.

    python -m tests.crash.flips.flips --rounds 500 --seed 1

The folder is that of a server that was killed, or stopped, under the load of `tests.crash.server.lives_load`; the bit
is in any of its files.  A server that starts on it must either say what is damaged and end, or serve: then every record
that it serves is one that was written, at its place, once, and what is missing is refused with an error and named in
the log.  Anything else is `Broken`: a record that is wrong, missing, or there twice, an aborted one that is visible,
a topic that is gone, a traceback.
"""

import argparse
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from magnetar.testing.server import MagnetarProcess, ServerFailed
from tests.crash.power.cuts import server_on
from tests.crash.server import lives_rounds
from tests.crash.server.killing import Broken
from tests.crash.server.lives import History, Inspector

RUN_SECONDS = 1.5
PATIENCE_S = 4.0  # with what cannot be read: clients ask again and again
SKIPPED = re.compile(r"-shm$|lock$")  # they hold nothing
ZEROES = bytes(4096)
KINDS = (
    ("journal", re.compile(r"journal/")),
    ("segment", re.compile(r"segments/")),
    ("catalogue", re.compile(r"catalogue")),
    ("metadata", re.compile(r"metadata\.sqlite$")),
    ("metadata's WAL", re.compile(r"metadata\.sqlite-wal$")),
    ("other", re.compile(r"")),
)


class Specimen:
    """A data folder that was in use, and what the load knows of it."""

    def __init__(self, directory: Path, seed: int, *, killed: bool) -> None:
        self.data = directory / "data"
        self.killed = killed
        with server_on(self.data) as server:
            lives_rounds.prepare(server)
            load = lives_rounds.Load(server, seed)
            try:
                load.wait_until(lambda: load.ack_count > 0, "something is acknowledged")
                time.sleep(RUN_SECONDS)
                load.ask("pause")
            finally:
                load.close()
            if killed:
                server.kill()
        self.history = load.history
        self.files: dict[str, list[Path]] = {}
        for path in sorted(self.data.rglob("*")):
            if path.is_file() and path.stat().st_size and not SKIPPED.search(path.name):
                self.files.setdefault(kind_of(path.relative_to(self.data)), []).append(path)


def kind_of(path: Path) -> str:
    return next(kind for kind, pattern in KINDS if pattern.match(str(path)))


def choose_bit(path: Path, choose: random.Random) -> int:
    """Anywhere in a block that holds something."""
    content = path.read_bytes()
    blocks = [start for start in range(0, len(content), 4096) if content[start : start + 4096].strip(b"\0")]
    start = choose.choice(blocks or [0])
    return choose.randrange(start * 8, min(start + 4096, len(content)) * 8)


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ (1 << bit % 8)]))


def examine(data: Path, history: History) -> str:
    """What the server makes of `data`: "refused", "harmless", "named".  `Broken` if it serves what is wrong."""
    server = server_on(data)
    try:
        with server:
            try:
                outcome = _read(server, history)
            finally:
                server.kill()
    except ServerFailed:
        _check_log(server.log)
        said = [line for line in server.log.splitlines() if line.startswith("magnetar: ")]
        if not said:
            raise Broken(f"the server ended without a sentence: {server.log[-500:]}") from None
        return "refused"
    _check_log(server.log)
    return outcome


def _check_log(log: str) -> None:
    if "Traceback" in log:
        raise Broken("a traceback: " + log[log.index("Traceback") :][-600:])


def _read(server: MagnetarProcess, history: History) -> str:
    inspector = Inspector(server.bootstrap, PATIENCE_S, may_refuse=True)
    inspector.inspect(history, quiet=True)
    if not inspector.refused:
        return "harmless"
    if not re.search(r" (ERROR|WARNING) ", server.log):
        raise Broken(f"{sorted(inspector.refused)} cannot be read, and the log does not say why")
    return "named"


class Flips:
    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._seed = seed
        self._specimens = [
            Specimen(directory / name, seed, killed=name == "killed") for name in ("killed", "stopped")
        ]

    def run(
        self, count: int, say: Callable[[str], None], *, first: int = 0
    ) -> tuple[Counter[str], list[str]]:
        """The outcomes by kind of file, and what was broken."""
        outcomes: Counter[str] = Counter()
        broken: list[str] = []
        for number in range(first, first + count):
            choose = random.Random(f"{self._seed} {number}")
            specimen = choose.choice(self._specimens)
            kind = choose.choice(sorted(specimen.files))
            path = choose.choice(specimen.files[kind])
            bit = choose_bit(path, choose)
            where = f"flip {number}: bit {bit % 8} of byte {bit // 8} of {path.relative_to(specimen.data)}"
            data = self._directory / "flipped"
            shutil.copytree(specimen.data, data)
            flip(data / path.relative_to(specimen.data), bit)
            try:
                outcome = examine(data, specimen.history)
            except Broken as failure:
                outcome = "BROKEN"
                broken.append(f"{where} ({'killed' if specimen.killed else 'stopped'}): {failure}")
                say(broken[-1])
            outcomes[f"{kind}: {outcome}"] += 1
            shutil.rmtree(data)
        return outcomes, broken


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="magnetar-flips-"))
    print(f"python -m tests.crash.flips.flips --rounds {options.rounds} --seed {seed}", flush=True)
    try:
        outcomes, broken = Flips(directory, seed).run(
            options.rounds, lambda each: print(f"  {each}", flush=True)
        )
    finally:
        shutil.rmtree(directory)
    for outcome, count in sorted(outcomes.items()):
        print(f"{outcome} {count}")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
