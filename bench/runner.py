"""Runs measures on both servers in turn, and never leaves a server or its data behind."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from bench import disk, measures, profile, pulsar_measures, stats
from bench.measures import Effort, Measure, Tools
from bench.process import RunFailed
from bench.pulsar_server import PULSAR, Pulsar
from bench.servers import BASE, KAFKA, MAGNETAR, SINK, Base, Kafka, Magnetar, Server, Sink
from bench.stats import Comparison, Figure, Paired, Samples, Verdict

Say = Callable[[str], None]


@dataclass
class Result:
    """Samples of one measure by server name; `failures` says in a sentence what did not work."""

    measure: Measure
    samples: dict[str, Samples] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def values(self, server: str, name: str) -> list[float]:
        return self.samples.get(server, {}).get(name, [])

    def compare(self, figure: Figure) -> Comparison:
        """Magnetar beside its peer, or beside another field of its own."""
        if figure.against is None:
            theirs = self.values(self.measure.peer, figure.field)
        else:
            theirs = self.values(MAGNETAR, figure.against)
        return stats.compare(figure, self.values(MAGNETAR, figure.field), theirs)

    def beside_base(self, figure: Figure) -> Paired | None:
        """How a figure compares with the other Magnetar's; None where that was not measured."""
        return stats.pair(self.values(MAGNETAR, figure.field), self.values(BASE, figure.field))

    @property
    def is_undecided(self) -> bool:
        """Whether a figure needs more runs before they allow a verdict."""
        return any(
            self.compare(figure).verdict is Verdict.UNDECIDED
            or (
                (paired := self.beside_base(figure)) is not None
                and stats.judge_change(figure, paired) is Verdict.UNDECIDED
            )
            for figure in self.measure.figures
        )


class Runner:
    """Owns the servers of a run and the folder they live in; use it as a context manager.

    Shared servers are started when first needed, warmed up, and kept: only one of them is loaded at any time.
    """

    def __init__(
        self,
        names: Sequence[str],
        kafka: Path | None,
        pulsar: Path | None,
        tools: Tools,
        effort: Effort,
        work: Path,
        say: Say,
        profiles: Path | None = None,
        base: Path | None = None,
    ) -> None:
        """`profiles`: the folder for Magnetar's profiles, one for each run; None takes none.  `base`: the `magnetar`
        of the server that is called so."""
        self.names = names
        self.kafka = kafka
        self.pulsar = pulsar
        self.tools = tools
        self.effort = effort
        self.say = say
        self.profiles = profiles
        self.base = base
        self.scratch = Path(tempfile.mkdtemp(prefix="run-", dir=work))
        self.shared: dict[tuple[str, tuple[str, ...], str], Server] = {}
        self.serial = 0

    def __enter__(self) -> "Runner":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.scratch, ignore_errors=True)
            for server in self.shared.values():
                stack.callback(server.discard)
            self.shared = {}

    def run(self, measure: Measure) -> Result:
        """All pairs of one measure, each in the other order than the one before; beside another Magnetar every measure
        is repeated.  What is undecided gets more pairs.  A server that fails is left out of the rest of the measure."""
        result = Result(measure)
        is_repeated = measure.repeated or self.base is not None
        pairs = self.effort.pairs if is_repeated else 1
        pairs_max = max(pairs, self.effort.pairs_max) if is_repeated else 1
        for pair in range(1, pairs_max + 1):
            if pair > pairs and (result.failures or not result.is_undecided):
                break
            for name in self.names if pair % 2 else reversed(self.names):
                if name not in result.failures and name in (MAGNETAR, BASE, measure.peer):
                    self.say(f"{measure.title}: {name}, {pair} of {max(pair, pairs)}")
                    self._run_once(name, result, pair)
        return result

    def _run_once(self, name: str, result: Result, pair: int) -> None:
        measure = result.measure
        try:
            with self._server(name, measure) as server:
                before = self._rest(measure)
                with self._profile(server, measure, pair):
                    found = measure.run(server, self.tools, self.effort) | before
        except RunFailed as error:
            result.failures[name] = str(error)
        else:
            stats.merge(result.samples.setdefault(name, {}), found)

    def _rest(self, measure: Measure) -> Samples:
        """From the other server's run and from this one's warm-up; what the disk is like where that decides."""
        if not measure.calm:
            disk.rest(self.scratch)
            return {}
        pace = disk.calm(self.scratch)
        return {f"disk_{name}": [value] for name, value in pace._asdict().items()}

    def _profile(
        self, server: Server, measure: Measure, pair: int
    ) -> contextlib.AbstractContextManager[None]:
        if self.profiles is None or server.name != MAGNETAR or measure.fresh:
            return contextlib.nullcontext()
        return profile.sampling(server.pid, self.profiles / f"profile-{measure.name}-{pair}.txt")

    @contextlib.contextmanager
    def _server(self, name: str, measure: Measure) -> Iterator[Server]:
        if measure.fresh:
            server = self._new(name, ())
            try:
                yield server
            finally:
                server.discard()
            return
        server = self._shared(name, measure)
        if not server.alive():
            raise RunFailed(f"{name} has ended during the measure before; its log was {server.log}")
        yield server

    def _shared(self, name: str, measure: Measure) -> Server:
        """One for each door: a server is warmed up with the clients that it is measured with."""
        settings = measure.settings if name in (MAGNETAR, BASE) else measure.peer_settings
        door = KAFKA if measure.peer in (KAFKA, SINK) else PULSAR
        key = (name, settings, door)
        if key not in self.shared:
            server = self.shared[key] = self._new(name, settings)
            server.start()
            if name != SINK:
                warm_up = measures.warm_up if door == KAFKA else pulsar_measures.warm_up
                warm_up(server, self.tools)
        return self.shared[key]

    def _new(self, name: str, settings: tuple[str, ...]) -> Server:
        self.serial += 1
        folder = self.scratch / f"{name}-{self.serial}"
        if name == KAFKA:
            if self.kafka is None:
                raise RunFailed("the peers' kafka script is not here")
            return Kafka(folder, self.kafka, settings)
        if name == PULSAR:
            if self.pulsar is None:
                raise RunFailed("the peers' pulsar script is not here")
            return Pulsar(folder, self.pulsar, settings)
        if name == SINK:
            return Sink(folder)
        if name == BASE:
            return Base(folder, settings, self.base)
        return Magnetar(folder, settings)
