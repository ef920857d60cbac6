"""Connections to the brokers of a cluster: one for questions, and one to each broker that serves a partition."""

from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from magnetar.base.errors import WireError, kept
from magnetar.client.login import Login
from magnetar.client.pulsar_line import AskedInVain, LineLost, PulsarLine, connection_to
from magnetar.links.errors import SourceUnavailable
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandLookupTopic, CommandLookupTopicResponse

CLIENT: Final = "magnetar-clone"
_HOPS_MAX: Final = 20  # from broker to broker, until one says who serves a topic

Server = tuple[str, int]  # host, port


class _Broker(NamedTuple):
    """Where a broker is connected to, and its own `host:port` if that is a proxy."""

    server: Server
    proxied_to: str = ""


class Lines:
    """`servers` are asked in turn until one answers."""

    def __init__(self, servers: tuple[Server, ...], with_tls: bool, login: Login) -> None:
        self._servers = servers
        self._with_tls = with_tls
        self._login = login
        self._asking: PulsarLine | None = None
        self._asked: Server = servers[0]
        self._serving: dict[_Broker, PulsarLine] = {}

    def close(self) -> None:
        for line in (*self._serving.values(), *([self._asking] if self._asking else [])):
            line.close()
        self._serving.clear()
        self._asking = None

    @property
    def serving(self) -> list[PulsarLine]:
        """The lines to brokers that serve partitions."""
        return list(self._serving.values())

    def lost(self, line: PulsarLine) -> None:
        """A line to a broker is of no use any more."""
        line.close()
        self._serving = {broker: one for broker, one in self._serving.items() if one is not line}

    def ask(self, command: BaseCommand, answer: "BaseCommand.Type") -> Any:
        """The answer of any broker.  A line that was lost meanwhile is opened again.

        Raises:
            AskedInVain: the answer is an error.
            SourceUnavailable: there is none, or the login is refused.
        """
        for is_last in (self._asking is None, True):
            try:
                if self._asking is None:
                    self._asking = self._open_any()
                return self._asking.ask(command, answer)
            except (LineLost, WireError) as error:
                if self._asking is not None:
                    self._asking.close()
                    self._asking = None
                if is_last:
                    raise SourceUnavailable(f"{self._shown(self._asked)} does not answer: {error}") from None
        raise AssertionError("a last attempt returns or raises")

    def to_broker_of(self, topic: str) -> PulsarLine:
        """A line to the broker that serves a partition.

        Raises:
            AskedInVain: there is none, or it refuses the login.
            LineLost, SourceUnavailable, WireError: it does not answer.
        """
        asked = CommandLookupTopic(topic=topic, request_id=0)
        hop: PulsarLine | None = None
        try:
            for _ in range(_HOPS_MAX):
                command = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=asked)
                kind = BaseCommand.LOOKUP_RESPONSE
                found = self.ask(command, kind) if hop is None else hop.ask(command, kind)
                if found.response == CommandLookupTopicResponse.Failed:
                    raise AskedInVain(found.message, found.error)
                broker = self._broker(found)
                if found.response == CommandLookupTopicResponse.Connect:
                    return self._serving_line(broker)
                if hop is not None:
                    hop.close()
                hop = self._open(broker)
                asked.authoritative = found.authoritative
        finally:
            if hop is not None:
                hop.close()
        raise LineLost(f"the brokers do not agree who serves {topic}")

    def _broker(self, found: CommandLookupTopicResponse) -> _Broker:
        url = found.brokerServiceUrlTls if self._with_tls else found.brokerServiceUrl
        parts = urlsplit(url)
        if parts.hostname is None or parts.port is None:
            raise LineLost(f"a broker says that {url[:200]!r} is its address")
        if found.proxy_through_service_url:
            return _Broker(self._asked, parts.netloc)
        return _Broker((parts.hostname, parts.port))

    def _serving_line(self, broker: _Broker) -> PulsarLine:
        line = self._serving.get(broker)
        if line is None:
            line = self._serving[broker] = self._open(broker)
        return line

    def _open_any(self) -> PulsarLine:
        """A line to the first server that answers.  Raises LineLost, SourceUnavailable."""
        trouble: LineLost | None = None
        for server in self._servers:
            self._asked = server
            try:
                return self._open(_Broker(server))
            except AskedInVain as error:
                if not error.is_about_login:
                    trouble = LineLost(str(error))
                    continue
                raise SourceUnavailable(f"{self._shown(server)} refuses the login: {error}") from None
            except LineLost as error:
                trouble = kept(error)
        assert trouble is not None, "there is a server"
        try:
            raise trouble
        finally:
            del trouble  # its traceback has this frame (`base/errors.kept`)

    def _open(self, broker: _Broker) -> PulsarLine:
        """Raises LineLost, AskedInVain, WireError, ConfigError."""
        connected = connection_to(broker.server, self._login, with_tls=self._with_tls)
        line = PulsarLine(connected, CLIENT, lambda: self._login.token)
        try:
            line.log_in(broker.proxied_to)
        except BaseException:
            line.close()
            raise
        return line

    def _shown(self, server: Server) -> str:
        host, port = server
        scheme = "pulsar+ssl" if self._with_tls else "pulsar"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
