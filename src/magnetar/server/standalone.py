"""The whole server in one process, as `magnetar standalone` runs it.

Start: lock the data directory, bind every listener (so that a port in use is reported at once), recover storage and
metadata, load the broker, accept connections, print the addresses and then `ready`.  Stop (SIGTERM or SIGINT): stop
accepting, answer the requests in flight, close connections, let the broker and the stores finish, and end with 0.
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
from functools import partial
from itertools import chain
from typing import Final

import uvloop

from magnetar.admin import serving
from magnetar.admin.access import Access
from magnetar.admin.network_metrics import declare_network_metrics
from magnetar.base.arena import Arena
from magnetar.base.clock import SystemClock
from magnetar.base.limits import raise_open_files_limit
from magnetar.base.listeners import ANY_HOST, is_loopback
from magnetar.base.lockfile import DirectoryLock
from magnetar.base.logging import get_logger
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.metrics import Metrics
from magnetar.base.private import new_private_folder
from magnetar.base.settings import ServerSettings
from magnetar.base.turn_end import TurnEnd
from magnetar.base.worker_token import NAME as worker_token_file
from magnetar.base.worker_token import ensure_token
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Endpoint, Node, Nodes, PulsarEndpoints
from magnetar.broker.security.audit import Audit
from magnetar.broker.upkeep.health import Health, files_probe, space_probe
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore
from magnetar.protocols.door import Door, DoorContext
from magnetar.server.acceptor import HELD_MAX, Acceptors
from magnetar.server.audit_log import AuditLog
from magnetar.server.authentication import make_authentication
from magnetar.server.bearer import BearerLogins, KeptKeySets
from magnetar.server.binding import bind as bind_stores
from magnetar.server.certificates import Certificates
from magnetar.server.doors import Bound, bind_doors, load_doors, looked_up
from magnetar.server.function_instances import FunctionInstances, Places, service_url
from magnetar.server.garbage import tune_collector
from magnetar.server.http_ports import HttpPorts, bind_http
from magnetar.server.layer_settings import (
    OPEN_FILES_SHARES,
    asks_for_certificate,
    broker_settings,
    connection_limits,
    connection_memory,
    store_settings,
)
from magnetar.server.listeners import Connections
from magnetar.server.loop_watch import LoopWatch
from magnetar.server.pipeline_worker import FOLDER, PipelineWorker, worker_command
from magnetar.server.sealing_key import sealing_keys
from magnetar.server.security import RENEW_INTERVAL_S, Security
from magnetar.server.watched_files import LOOK_INTERVAL_S
from magnetar.storage.local.metrics import declare_store_metrics
from magnetar.storage.local.store import LocalLedgerStore

log = get_logger(__name__)

DRAIN_S_MAX: Final = 10.0  # a client that does not read its responses delays a stop at most so long
IN_FLIGHT_BYTES: Final = 512 << 20  # the most receive memory in addition to that of the entry cache
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
    clock = SystemClock()
    for notice in settings.notices:
        log.info(notice)
    async with contextlib.AsyncExitStack() as stack:
        new_private_folder(settings.data_dir)
        lock = DirectoryLock(settings.data_dir / "lock")
        stack.callback(lock.release)
        audit_log = None
        if settings.audit is not None:
            audit_log = AuditLog.open(settings.audit.target, settings.data_dir, clock)
            stack.callback(audit_log.close)
        audit = Audit(clock, audit_log, with_logins=settings.audit is not None and settings.audit.with_logins)
        stack.callback(audit.close)
        worker_token = ensure_token(settings.data_dir / worker_token_file)
        sealing = await asyncio.to_thread(sealing_keys, settings.sealing, settings.data_dir, os.environ)
        security = Security(settings, clock) if settings.is_secured else None
        key_sets = KeptKeySets(clock)
        stack.callback(key_sets.close)
        authentication, refresh_authentication = (
            (None, None)
            if settings.authentication is None
            else await make_authentication(settings.authentication, clock, os.environ, key_sets)
        )
        bearer_logins = BearerLogins(clock, key_sets)
        await bearer_logins.prepare(settings.network.sasl.values())
        doors = load_doors(settings)
        nodes = Nodes(
            [
                Node(settings.nodes.first_id + index, settings.nodes.rack)
                for index in range(settings.nodes.count)
            ]
        )
        bound = list(bind_doors(doors, nodes.all, stack))
        plain_endpoint, tls_endpoint = looked_up(bound, nodes.all)
        functions_url = service_url(bound) if settings.pipelines.functions_enabled else None
        certificates = Certificates()
        for one in bound:
            if one.listener.tls is not None:
                certificates.of(one.listener.tls)
        ports = bind_http(settings.network, certificates, clock, stack)
        _warn_of_strangers(
            chain(
                chain.from_iterable(one.sockets for one in bound if not _is_closed(one)),
                ports.open_to_all(settings.network) if authentication is None else (),
            )
        )
        metadata = SqliteMetadataStore(settings.data_dir / "metadata.sqlite", clock)
        stack.push_async_callback(metadata.close)
        turn_end = TurnEnd()
        store = await LocalLedgerStore.start(
            settings.data_dir, settings=store_settings(settings), clock=clock, on_reported=turn_end.now
        )
        stack.push_async_callback(store.close)
        binding = await bind_stores(metadata, store)
        stack.push_async_callback(binding.close)
        broker = Broker(
            broker_settings(settings, await _cluster_id(metadata), worker_token, sealing),
            store,
            metadata,
            clock,
            nodes,
            authentication=authentication,
            bearer_of=bearer_logins.of,
            audit=audit,
        )
        if audit_log is not None:
            broker.health.note("audit_log", lambda: audit_log.problem)
        binding.start(broker.upkeep)
        await broker.start()
        stack.push_async_callback(broker.stop)
        _watch_parts(broker.health, store, metadata, settings, open_files_max)
        memory = MemoryBudget(connection_memory(settings), clock)
        in_flight_bytes = min(memory.bytes_max + memory.bytes_max // 4, IN_FLIGHT_BYTES)
        entry_cache_bytes = settings.storage.entry_cache_bytes
        arena = Arena(entry_cache_bytes + entry_cache_bytes // 4 + in_flight_bytes)
        connections = Connections(
            connection_limits(settings, open_files_max), clock, memory, broker.admission
        )
        context = DoorContext(
            broker.cases, nodes, clock, arena, memory, turn_end, connection_count=lambda: len(connections)
        )
        for door in doors:
            door.open(context)
            stack.callback(door.close)
        stack.push_async_callback(connections.drain, DRAIN_S_MAX)
        acceptors = Acceptors(clock, broker.admission, min(HELD_MAX, open_files_max // OPEN_FILES_SHARES))
        stack.push_async_callback(acceptors.close)
        for one in bound:
            _listen(one, connections, acceptors, certificates, stack)
            for listening in one.sockets:
                url = f"{one.listener.scheme}://{_address(listening)}"
                announce(f"{one.door.name:6} {url}  {one.listener.remark}".rstrip())
        if certificates:
            looking = broker.upkeep.every(LOOK_INTERVAL_S, "certificates", certificates.refresh)
            stack.push_async_callback(looking.stop)
        if refresh_authentication is not None:
            looking = broker.upkeep.every(LOOK_INTERVAL_S, "passwords", refresh_authentication)
            stack.push_async_callback(looking.stop)
        for listening in ports.plain:
            announce(f"http   http://{_address(listening)}")
        for listening in ports.with_tls:
            announce(f"http   https://{_address(listening)}")
        if security is not None:
            for line in security.tell_clients(nodes, tls_endpoint, ports.with_tls[0].getsockname()[1]):
                announce(line)
            renewing = broker.upkeep.every(RENEW_INTERVAL_S, "the server's certificate", security.renew)
            stack.push_async_callback(renewing.stop)
        announce(f"data   {settings.data_dir.resolve()}")
        announce("magnetar is ready")
        # These imports take half a second.  Clients of both protocols need not wait for them, but a request over HTTP
        # waits in its socket's queue.
        create_app = await serving.load()
        access = _access(settings, ports.all, worker_token)
        app = create_app(
            broker.cases,
            _metrics(doors, store, memory, connections, ports, LoopWatch(clock)),
            PulsarEndpoints(plain_endpoint, tls_endpoint, settings.network.pulsar.listeners.advertised),
            access,
            ports.numbers,
        )
        http = await serving.serve(
            app,
            ports.plain,
            broker.stored_records.stop_waiting,
            ports.secured,
            open_files_max // OPEN_FILES_SHARES,
            access.is_worker,
        )
        stack.push_async_callback(http.close)
        stack.callback(broker.upkeep.watch("HTTP", http.ticking).expect_end)  # before it is closed
        stack.callback(broker.pipelines.release_waiting)
        _start_children(settings, broker, clock, ports.plain, functions_url, stack)
        tune_collector(broker.upkeep.every, broker.cache.entry_count)
        await stop.wait()
        log.info("stopping")
    return 0


def _listen(
    one: Bound,
    connections: Connections,
    acceptors: Acceptors,
    certificates: Certificates,
    stack: contextlib.AsyncExitStack,
) -> None:
    make_session = partial(one.door.connected, one.listener)
    name = one.listener.name.upper()
    factory: Callable[[], asyncio.BufferedProtocol] = connections.factory(name, make_session)
    if one.listener.tls is not None:
        factory = connections.tls_factory(name, make_session, certificates.of(one.listener.tls))
    for listening in one.sockets:
        stack.callback(acceptors.listen(name, listening, factory).close)


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _access(settings: ServerSettings, http_sockets: Iterable[socket.socket], worker_token: str) -> Access:
    """The names that this server accepts in requests: those where it listens, those that it advertises, and
    configured ones.
    """
    network = settings.network
    names = [one.host for one in network.listeners] + [host for host, _ in network.advertised.values()]
    names += [
        network.http_host,
        network.pulsar.host,
        network.pulsar.advertised_host,
        *network.pulsar.listeners.hosts,
        *network.http_allowed_hosts,
    ]
    if not all(is_loopback(one.getsockname()[0]) for one in http_sockets):
        names.append(socket.gethostname())
    authentication = settings.authentication
    asks_for_metrics = authentication is not None and authentication.with_metrics
    return Access.of(names, network.http_allowed_origins, worker_token, asks_for_metrics)


def _watch_parts(
    health: Health,
    store: LocalLedgerStore,
    metadata: SqliteMetadataStore,
    settings: ServerSettings,
    open_files_max: int,
) -> None:
    """Register the parts that `/health` checks besides the broker's own."""
    health.register("storage", lambda: store.problem)
    health.note("damage", lambda: store.damage.problem)
    health.register("metadata", lambda: metadata.problem)
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
    open_to_all = [_address(one) for one in sockets if not is_loopback(one.getsockname()[0])]
    if open_to_all:
        log.warning(
            f"listening outside of loopback on {', '.join(open_to_all)}: no client has to show who it is there, so"
            " any client that reaches these ports owns the data"
        )


def _metrics(
    doors: Iterable[Door],
    store: LocalLedgerStore,
    memory: MemoryBudget,
    connections: Connections,
    ports: HttpPorts,
    loop_watch: LoopWatch,
) -> Metrics:
    """The metrics of the process besides the broker's own."""
    metrics = Metrics()
    for door in doors:
        door.declare_metrics(metrics)
    declare_network_metrics(
        metrics,
        memory,
        loop_watch.stalls,
        lambda: loop_watch.longest_s,
        lambda: connections.refused_count,
        lambda: connections.handshakes.failed_count + ports.tls_failure_count,
    )
    declare_store_metrics(metrics, store.counters, store.leases, store.damage)
    return metrics


def _start_children(
    settings: ServerSettings,
    broker: Broker,
    clock: SystemClock,
    http_sockets: Sequence[socket.socket],
    functions_url: str | None,
    stack: contextlib.AsyncExitStack,
) -> None:
    """Start the server's own processes: the pipelines' worker, and the instances of functions if they have a URL.

    They stop first, because they need everything else to stop what they run.
    """
    worker = _pipeline_worker(settings, broker, clock, http_sockets)
    if worker is not None:
        broker.upkeep.watch("the pipelines' worker", worker.start())
        stack.push_async_callback(worker.stop)
    if functions_url is not None:
        places = Places(functions_url, settings.data_dir.resolve(), settings.pipelines.functions_readable)
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
