"""The whole server in one process, as `magnetar standalone` runs it.

Start: lock the data directory, bind every listener (so that a port in use is reported at once), recover storage and
metadata.  Then load the broker, accept connections, print the addresses and then `ready`.  Stop (SIGTERM or SIGINT):
stop accepting, answer the requests in flight, close connections, let the broker and the stores finish, and end with 0.
"""

import asyncio
import base64
import contextlib
import os
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final

import uvloop

from magnetar.admin.network_metrics import declare_network_metrics
from magnetar.base.clock import SystemClock
from magnetar.base.limits import raise_open_files_limit
from magnetar.base.listeners import ANY_HOST, is_loopback
from magnetar.base.logging import get_logger
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.metrics import Metrics
from magnetar.base.settings import ServerSettings
from magnetar.base.turn_end import TurnEnd
from magnetar.base.worker_token import NAME as worker_token_file
from magnetar.base.worker_token import ensure_token
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Endpoint
from magnetar.broker.upkeep.health import Health, files_probe, space_probe
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.server.doors import Bound
from magnetar.server.function_instances import FunctionInstances, Places
from magnetar.server.garbage import tune_collector
from magnetar.server.layer_settings import (
    asks_for_certificate,
    broker_settings,
    connection_limits,
    connection_memory,
)
from magnetar.server.listeners import Connections
from magnetar.server.loop_watch import LoopWatch
from magnetar.server.pipeline_worker import FOLDER, PipelineWorker, worker_command
from magnetar.server.sealing_key import sealing_keys
from magnetar.server.security import Security
from magnetar.server.start_steps import Ports, Start, Stores, address
from magnetar.storage.local.metrics import declare_store_metrics

log = get_logger(__name__)

# After a read or write a thread waits so long for the interpreter; Python's default of 5 ms would be most of p99.
SWITCH_INTERVAL_S: Final = 0.0005

_CLUSTER_ID_PATH: Final = "/cluster-id"


def _announce(line: str) -> None:
    print(line, flush=True)


def run(settings: ServerSettings, announce: Callable[[str], None] = _announce) -> int:
    """Serve until SIGTERM or SIGINT; returns the process's exit code.

    `announce` gets one line per listener and then the one that says `ready`.

    Raises:
        ConfigError: a setting does not work on this machine (a port in use, a data directory in use).
        OSError: the data directory cannot be used.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    open_files_max = raise_open_files_limit()
    return uvloop.run(_serve(settings, announce, open_files_max))


async def _serve(settings: ServerSettings, announce: Callable[[str], None], open_files_max: int) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for notice in settings.notices:
        log.info(notice)
    async with contextlib.AsyncExitStack() as stack:
        start = Start(settings, announce, open_files_max, stack)
        audit_log, audit = start.lock_and_open_audit()
        worker_token = ensure_token(settings.data_dir / worker_token_file)
        sealing = await asyncio.to_thread(sealing_keys, settings.sealing, settings.data_dir, os.environ)
        security = Security(settings, start.clock) if settings.is_secured else None
        logins = await start.prepare_logins()
        ports = start.bind()
        _warn_of_strangers(
            chain(
                chain.from_iterable(one.sockets for one in ports.bound if not _is_closed(one)),
                ports.http.open_to_all(settings.network) if logins.authentication is None else (),
            )
        )
        turn_end = TurnEnd()
        stores = await start.open_stores(turn_end)
        broker = Broker(
            broker_settings(settings, await _cluster_id(stores.metadata), worker_token, sealing),
            stores.ledgers,
            stores.metadata,
            start.clock,
            ports.nodes,
            authentication=logins.authentication,
            bearer_of=logins.bearer.of,
            audit=audit,
        )
        if audit_log is not None:
            broker.health.note("audit_log", lambda: audit_log.problem)
        stores.binding.start(broker.upkeep)
        await broker.start()
        stack.push_async_callback(broker.stop)
        _watch_parts(broker.health, stores, settings, open_files_max)
        memory = MemoryBudget(connection_memory(settings), start.clock)
        limits = connection_limits(settings, open_files_max)
        connections = Connections(limits, start.clock, memory, broker.admission)
        start.open_doors(ports, broker, connections, memory, turn_end)
        start.accept(ports, broker, connections)
        start.watch_files(ports, broker, logins, security)
        announce("magnetar is ready")
        metrics = _metrics(ports, stores, memory, connections, LoopWatch(start.clock))
        await start.serve_http(ports, broker, metrics, worker_token)
        _start_children(settings, broker, start.clock, ports, stack)
        tune_collector(broker.upkeep.every, broker.cache.entry_count)
        await stop.wait()
        log.info("stopping")
    return 0


def _watch_parts(health: Health, stores: Stores, settings: ServerSettings, open_files_max: int) -> None:
    """Register the parts that `/health` checks besides the broker's own."""
    health.register("storage", lambda: stores.ledgers.problem)
    health.note("damage", lambda: stores.ledgers.damage.problem)
    health.register("metadata", lambda: stores.metadata.problem)
    health.probe(
        "disk_space",
        "A look at the disk's space",
        space_probe(settings.data_dir, settings.storage.disk_free_bytes_min),
    )
    health.probe("open_files", "A look at the open files", files_probe(open_files_max))


def _is_closed(one: Bound) -> bool:
    """Whether a listener accepts only clients that log in, or that have a certificate of one of its authorities."""
    return one.listener.asks_for_login or asks_for_certificate(one.listener.tls)


def _warn_of_strangers(sockets: Iterable[socket.socket]) -> None:
    """Log a warning if programs on other machines can connect."""
    open_to_all = [address(one) for one in sockets if not is_loopback(one.getsockname()[0])]
    if open_to_all:
        log.warning(
            f"listening outside of loopback on {', '.join(open_to_all)}: no client has to show who it is there, so"
            " any client that reaches these ports owns the data"
        )


def _metrics(
    ports: Ports, stores: Stores, memory: MemoryBudget, connections: Connections, loop_watch: LoopWatch
) -> Metrics:
    """The metrics of the process besides the broker's own."""
    metrics, store = Metrics(), stores.ledgers
    for door in ports.doors:
        door.declare_metrics(metrics)
    declare_network_metrics(
        metrics,
        memory,
        loop_watch.stalls,
        lambda: loop_watch.longest_s,
        lambda: connections.refused_count,
        lambda: connections.handshakes.failed_count + ports.http.tls_failure_count,
    )
    declare_store_metrics(metrics, store.counters, store.leases, store.damage)
    return metrics


def _start_children(
    settings: ServerSettings,
    broker: Broker,
    clock: SystemClock,
    ports: Ports,
    stack: contextlib.AsyncExitStack,
) -> None:
    """Start the server's own processes: the pipelines' worker, and the instances of functions if they have a URL.

    They stop first, because they need everything else to stop what they run.
    """
    worker = _pipeline_worker(settings, broker, clock, ports.http.plain)
    if worker is not None:
        broker.upkeep.watch("the pipelines' worker", worker.start())
        stack.push_async_callback(worker.stop)
    if ports.functions_url is not None:
        places = Places(
            ports.functions_url, settings.data_dir.resolve(), settings.pipelines.functions_readable
        )
        instances = FunctionInstances(broker.functions, clock, places)
        broker.upkeep.watch("functions", instances.start())
        stack.push_async_callback(instances.stop)


def _pipeline_worker(
    settings: ServerSettings, broker: Broker, clock: SystemClock, http_sockets: Sequence[socket.socket]
) -> PipelineWorker | None:
    """The server's own worker; None if the settings want none, or if it could not reach the server."""
    wanted = settings.pipelines
    if not wanted.worker_enabled:
        return None
    if wanted.worker_context:
        server = ("--context", wanted.worker_context)
    elif http_sockets:
        host, port = http_sockets[0].getsockname()[:2]
        server = ("--admin-url", Endpoint("127.0.0.1" if host in ANY_HOST else host, port).url("http", ""))
    else:
        log.warning(
            "the pipelines' worker cannot reach this server without a port for HTTP: set pipelines.worker.context"
        )
        return None
    data_dir = settings.data_dir.resolve()
    command = worker_command(server, data_dir, wanted.master, wanted.memory, settings.log.level)
    return PipelineWorker(broker.pipelines, clock, command, data_dir / FOLDER)


async def _cluster_id(metadata: MetadataStore) -> str:
    """This cluster's id: 16 random bytes in Kafka's form, created at the first start."""
    stored = await metadata.get(_CLUSTER_ID_PATH)
    if stored is not None:
        return stored.value.decode()
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    await metadata.put(_CLUSTER_ID_PATH, cluster_id.encode(), MUST_NOT_EXIST)
    return cluster_id
