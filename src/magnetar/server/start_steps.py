"""The steps of a server's start, and what each leaves for the next ones.

`standalone.py` takes them in order.  Each step adds to one stack what undoes it.  So a stop, or a start that fails,
undoes them from the last one back.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from magnetar.admin import serving
from magnetar.admin.access import Access
from magnetar.base.arena import Arena
from magnetar.base.clock import SystemClock
from magnetar.base.listeners import is_loopback
from magnetar.base.lockfile import DirectoryLock
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.metrics import Metrics
from magnetar.base.private import new_private_folder
from magnetar.base.settings import ServerSettings
from magnetar.base.turn_end import TurnEnd
from magnetar.base.upkeep import Work
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Endpoint, Node, Nodes, PulsarEndpoints
from magnetar.broker.security.audit import Audit
from magnetar.broker.security.authentication import Authentication
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.protocols.door import Door, DoorContext
from magnetar.server.acceptor import HELD_MAX, Acceptors
from magnetar.server.audit_log import AuditLog
from magnetar.server.authentication import make_authentication
from magnetar.server.bearer import BearerLogins, KeptKeySets
from magnetar.server.binding import StoreBinding
from magnetar.server.binding import bind as bind_stores
from magnetar.server.certificates import Certificates
from magnetar.server.doors import Bound, bind_doors, load_doors, looked_up
from magnetar.server.function_instances import service_url
from magnetar.server.http_ports import HttpPorts, bind_http
from magnetar.server.layer_settings import OPEN_FILES_SHARES, store_settings
from magnetar.server.listeners import Connections
from magnetar.server.security import RENEW_INTERVAL_S, Security
from magnetar.server.watched_files import LOOK_INTERVAL_S
from magnetar.storage.local.store import LocalLedgerStore

DRAIN_S_MAX: Final = 10.0  # a client that does not read its responses delays a stop at most so long
IN_FLIGHT_BYTES: Final = 512 << 20  # the most receive memory in addition to that of the entry cache


class Logins(NamedTuple):
    """How clients log in.  `refresh` reads passwords again if their file has changed."""

    authentication: Authentication | None
    refresh: Work | None
    bearer: BearerLogins


class Ports(NamedTuple):
    """Where the server listens.  `plain` and `tls` are the addresses in its answers to look-ups over HTTP, and
    `functions_url` is for the instances of functions.
    """

    doors: Sequence[Door]
    nodes: Nodes
    bound: Sequence[Bound]
    plain: Endpoint | None
    tls: Endpoint | None
    functions_url: str | None
    certificates: Certificates
    http: HttpPorts


class Stores(NamedTuple):
    metadata: SqliteMetadataStore
    ledgers: LocalLedgerStore
    binding: StoreBinding


class Start:
    """The steps of one start, in their order.  Each adds to `stack` what undoes it."""

    def __init__(
        self,
        settings: ServerSettings,
        announce: Callable[[str], None],
        open_files_max: int,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self.clock = SystemClock()
        self._settings = settings
        self._announce = announce
        self._open_files_max = open_files_max
        self._stack = stack

    def lock_and_open_audit(self) -> tuple[AuditLog | None, Audit]:
        """Keep other processes out of the data directory, and open the audit log, if there is one."""
        data_dir, wanted = self._settings.data_dir, self._settings.audit
        new_private_folder(data_dir)
        lock = DirectoryLock(data_dir / "lock")
        self._stack.callback(lock.release)
        audit_log = None
        if wanted is not None:
            audit_log = AuditLog.open(wanted.target, data_dir, self.clock)
            self._stack.callback(audit_log.close)
        audit = Audit(self.clock, audit_log, with_logins=wanted is not None and wanted.with_logins)
        self._stack.callback(audit.close)
        return audit_log, audit

    async def prepare_logins(self) -> Logins:
        settings = self._settings
        key_sets = KeptKeySets(self.clock)
        self._stack.callback(key_sets.close)
        authentication, refresh = (
            (None, None)
            if settings.authentication is None
            else await make_authentication(settings.authentication, self.clock, os.environ, key_sets)
        )
        bearer = BearerLogins(self.clock, key_sets)
        await bearer.prepare(settings.network.sasl.values())
        return Logins(authentication, refresh, bearer)

    def bind(self) -> Ports:
        """Bind every listener, so that the server reports a port in use at once."""
        settings = self._settings
        doors = load_doors(settings)
        nodes = Nodes(
            [
                Node(settings.nodes.first_id + index, settings.nodes.rack)
                for index in range(settings.nodes.count)
            ]
        )
        bound = list(bind_doors(doors, nodes.all, self._stack))
        plain, tls = looked_up(bound, nodes.all)
        functions_url = service_url(bound) if settings.pipelines.functions_enabled else None
        certificates = Certificates()
        for one in bound:
            if one.listener.tls is not None:
                certificates.of(one.listener.tls)
        http = bind_http(settings.network, certificates, self.clock, self._stack)
        return Ports(doors, nodes, bound, plain, tls, functions_url, certificates, http)

    async def open_stores(self, turn_end: TurnEnd) -> Stores:
        settings = self._settings
        metadata = SqliteMetadataStore(settings.data_dir / "metadata.sqlite", self.clock)
        self._stack.push_async_callback(metadata.close)
        ledgers = await LocalLedgerStore.start(
            settings.data_dir,
            settings=store_settings(settings),
            clock=self.clock,
            on_reported=turn_end.now,
        )
        self._stack.push_async_callback(ledgers.close)
        binding = await bind_stores(metadata, ledgers)
        self._stack.push_async_callback(binding.close)
        return Stores(metadata, ledgers, binding)

    def open_doors(
        self,
        ports: Ports,
        broker: Broker,
        connections: Connections,
        memory: MemoryBudget,
        turn_end: TurnEnd,
    ) -> None:
        in_flight_bytes = min(memory.bytes_max + memory.bytes_max // 4, IN_FLIGHT_BYTES)
        entry_cache_bytes = self._settings.storage.entry_cache_bytes
        arena = Arena(entry_cache_bytes + entry_cache_bytes // 4 + in_flight_bytes)
        context = DoorContext(
            broker.cases,
            ports.nodes,
            self.clock,
            arena,
            memory,
            turn_end,
            connection_count=lambda: len(connections),
        )
        for door in ports.doors:
            door.open(context)
            self._stack.callback(door.close)

    def accept(self, ports: Ports, broker: Broker, connections: Connections) -> None:
        """Accept connections, and announce where."""
        self._stack.push_async_callback(connections.drain, DRAIN_S_MAX)
        held_max = min(HELD_MAX, self._open_files_max // OPEN_FILES_SHARES)
        acceptors = Acceptors(self.clock, broker.admission, held_max)
        self._stack.push_async_callback(acceptors.close)
        for one in ports.bound:
            _listen(one, connections, acceptors, ports.certificates, self._stack)
            for listening in one.sockets:
                url = f"{one.listener.scheme}://{address(listening)}"
                self._announce(f"{one.door.name:6} {url}  {one.listener.remark}".rstrip())
        for listening in ports.http.plain:
            self._announce(f"http   http://{address(listening)}")
        for listening in ports.http.with_tls:
            self._announce(f"http   https://{address(listening)}")

    def watch_files(self, ports: Ports, broker: Broker, logins: Logins, security: Security | None) -> None:
        """Look now and then at files that may change, and announce where the server's own are."""
        if ports.certificates:
            self._every(broker, LOOK_INTERVAL_S, "certificates", ports.certificates.refresh)
        if logins.refresh is not None:
            self._every(broker, LOOK_INTERVAL_S, "passwords", logins.refresh)
        if security is not None:
            https_port = ports.http.with_tls[0].getsockname()[1]
            for line in security.tell_clients(ports.nodes, ports.tls, https_port):
                self._announce(line)
            self._every(broker, RENEW_INTERVAL_S, "the server's certificate", security.renew)
        self._announce(f"data   {self._settings.data_dir.resolve()}")

    def _every(self, broker: Broker, interval_s: float, name: str, work: Work) -> None:
        self._stack.push_async_callback(broker.upkeep.every(interval_s, name, work).stop)

    async def serve_http(self, ports: Ports, broker: Broker, metrics: Metrics, worker_token: str) -> None:
        # These imports take half a second.  Clients of both protocols need not wait for them, but a request over HTTP
        # waits in its socket's queue.
        create_app = await serving.load()
        access = _access(self._settings, ports.http.all, worker_token)
        app = create_app(
            broker.cases,
            metrics,
            PulsarEndpoints(ports.plain, ports.tls, self._settings.network.pulsar.listeners.advertised),
            access,
            ports.http.numbers,
        )
        http = await serving.serve(
            app,
            ports.http.plain,
            broker.stored_records.stop_waiting,
            ports.http.secured,
            self._open_files_max // OPEN_FILES_SHARES,
            access.is_worker,
        )
        self._stack.push_async_callback(http.close)
        self._stack.callback(broker.upkeep.watch("HTTP", http.ticking).expect_end)  # before it is closed
        self._stack.callback(broker.pipelines.release_waiting)


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


def address(listening: socket.socket) -> str:
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
