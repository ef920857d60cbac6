"""`python -m bench`: the command line of the benchmark.  Exit status 0 whatever the figures say."""

import argparse
import fnmatch
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import client, machine, measures, process, profile, pulsar_server, report, servers
from bench.ceiling_measures import CEILING_MEASURES
from bench.cold_process_measures import COLD_PROCESS_MEASURES
from bench.compaction_measures import COMPACTION_MEASURES
from bench.delayed_measures import DELAYED_MEASURES
from bench.fairness_measures import FAIRNESS_MEASURES
from bench.function_measures import FUNCTION_MEASURES
from bench.measures import Measure, Tools
from bench.mirror import MirrorMaker
from bench.process import RunFailed
from bench.pulsar_client import PulsarPerf
from bench.pulsar_measures import PULSAR_MEASURES
from bench.pulsar_runner import PulsarRunner
from bench.queue_measures import QUEUE_MEASURES
from bench.replicator_measures import REPLICATOR_MEASURES
from bench.runner import Result, Runner
from bench.security_measures import SECURITY_MEASURES
from bench.spark_client import SPARK_KAFKA, SparkJobs
from bench.spark_measures import SPARK_MEASURES
from bench.tail_measures import TAIL_MEASURES

MEASURES = (
    *measures.MEASURES,
    *CEILING_MEASURES,
    *COLD_PROCESS_MEASURES,
    *TAIL_MEASURES,
    *QUEUE_MEASURES,
    *COMPACTION_MEASURES,
    *FAIRNESS_MEASURES,
    *SECURITY_MEASURES,
    *PULSAR_MEASURES,
    *DELAYED_MEASURES,
    *REPLICATOR_MEASURES,
    *FUNCTION_MEASURES,
    *SPARK_MEASURES,
)
REPOSITORY = Path(__file__).resolve().parent.parent
LOG_WIDTH = 150  # in a file or a pipe, where rich would take 80 and cut the figures


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench", description="Magnetar measured beside Apache Kafka and Apache Pulsar."
    )
    parser.add_argument(
        "--quick", action="store_true", help="the headline figures only, with less data (4 minutes)"
    )
    parser.add_argument(
        "--only",
        metavar="NAME,...",
        help="these measures; 'pulsar' is all that begin so, and patterns such as 'bulk-*' are fine",
    )
    parser.add_argument("--list", action="store_true", help="name the measures and stop")
    parser.add_argument(
        "--pairs",
        type=int,
        metavar="N",
        help="runs of each server (3, and up to 9 where they do not allow a verdict)",
    )
    parser.add_argument(
        "--servers",
        default="magnetar,kafka,pulsar",
        metavar="NAMES",
        help="measure only these: magnetar, kafka, pulsar",
    )
    parser.add_argument(
        "--base",
        type=Path,
        metavar="PROGRAM",
        help="measure beside the `magnetar` of another installation instead, pair by pair",
    )
    parser.add_argument(
        "--profile", action="store_true", help="sample Magnetar with perf, text files beside --output"
    )
    parser.add_argument("--output", type=Path, default=REPOSITORY / "bench" / "results" / "latest.json")
    parser.add_argument(
        "--scratch", type=Path, default=client.WORK, help="where the servers keep their data meanwhile"
    )
    arguments = parser.parse_args(words)
    arguments.servers = arguments.servers.split(",")
    if not set(arguments.servers) <= {servers.MAGNETAR, servers.KAFKA, pulsar_server.PULSAR}:
        parser.error("--servers takes any of magnetar, kafka and pulsar")
    if arguments.base is not None:
        arguments.servers = [servers.MAGNETAR, servers.BASE]
    if arguments.pairs is not None and arguments.pairs < 1:
        parser.error("--pairs takes a number from 1")
    return arguments


def select(only: str | None, *, quick: bool) -> list[Measure]:
    """Raises RunFailed when a pattern of `only` matches nothing."""
    if only is None:
        return [measure for measure in MEASURES if measure.quick or not quick]
    patterns = only.split(",")
    for pattern in patterns:
        if not any(_matches(measure, pattern) for measure in MEASURES):
            raise RunFailed(f"no measure is called {pattern}; --list names them")
    return [measure for measure in MEASURES if any(_matches(measure, each) for each in patterns)]


def _matches(measure: Measure, pattern: str) -> bool:
    return fnmatch.fnmatch(measure.name, pattern) or measure.name.startswith(f"{pattern}-")


def run(arguments: argparse.Namespace, console: Console) -> None:
    chosen = select(arguments.only, quick=arguments.quick)
    kafka = servers.find_peer(REPOSITORY, servers.KAFKA)
    pulsar = servers.find_peer(REPOSITORY, pulsar_server.PULSAR)
    names = list(arguments.servers)
    for peer, script in ((servers.KAFKA, kafka), (pulsar_server.PULSAR, pulsar)):
        if script is None and peer in names:
            names.remove(peer)
            console.print(
                f"Apache {peer.capitalize()} is not here (MAGNETAR_PEERS names the folder of peers): "
                "Magnetar alone, no ratios."
            )
    if arguments.base is not None:
        servers.check_program(arguments.base)
    elif servers.MAGNETAR in names:
        names.append(servers.SINK)
    if servers.MAGNETAR in names:
        servers.magnetar_command()
    if not names:
        raise RunFailed("there is no server to measure")
    if arguments.profile:
        profile.check()
    process.raise_file_limit()
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    program = client.build(client.WORK, console.print)
    effort = measures.QUICK if arguments.quick else measures.FULL
    if arguments.pairs is not None:
        effort = replace(effort, pairs=arguments.pairs, pairs_max=arguments.pairs)
    about: dict[str, object] = {
        "commit": machine.commit(REPOSITORY),
        "machine": machine.describe(arguments.scratch),
        "versions": machine.versions(with_kafka=kafka is not None, with_pulsar=pulsar is not None),
        "effort": vars(effort),
        "profiled": arguments.profile,
    }
    tools = Tools(
        client.Librdkafka(program),
        None if kafka is None else client.KafkaTools(kafka),
        None if pulsar is None else PulsarPerf(pulsar),
        SparkJobs(servers.find_peer(REPOSITORY, SPARK_KAFKA)),
        None if kafka is None else MirrorMaker(kafka, client.WORK),
        None if pulsar is None else PulsarRunner(pulsar),
    )
    profiles = arguments.output.parent if arguments.profile else None
    results: list[Result] = []
    try:
        with (
            console.status("starting") as status,
            Runner(
                names,
                kafka,
                pulsar,
                tools,
                effort,
                arguments.scratch,
                status.update,
                profiles,
                arguments.base,
            ) as runner,
        ):
            for measure in chosen:
                results.append(runner.run(measure))
                report.write(arguments.output, report.document(results, about))
                console.print(f"{measure.title}: measured", style="dim")
    finally:
        if results:
            report.show(results, console)
            console.print(f"Raw samples: {arguments.output}", style="dim", soft_wrap=True)


def main(words: Sequence[str] | None = None) -> int:
    console = Console()
    if not console.is_terminal:
        console.width = LOG_WIDTH
    arguments = parse_arguments(sys.argv[1:] if words is None else words)
    if arguments.list:
        for measure in MEASURES:
            console.print(f"{measure.name:22} {measure.title}{'  (quick)' if measure.quick else ''}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(arguments, console)
    except RunFailed as error:
        console.print(f"bench: {error}", style="bold red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("bench: interrupted; everything it started has been ended", style="yellow")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
