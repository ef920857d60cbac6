"""The options of all commands that connect to a server: its address, and how to log in there.

The first of these that is set counts: `--context` or `--url`; the environment's `MAGNETAR_CONTEXT` or `MAGNETAR_URL`;
the user's current context.  Otherwise it is the server of this machine.  An address without a context is used without
a login, so that no token goes to another server.  `MAGNETAR_TOKEN` is for a context without a token.
"""

import functools
import inspect
import os
from collections.abc import Callable
from contextlib import closing
from typing import Annotated, Any, Final

import typer

from magnetar.base.contexts import VARIABLE, default_file, read_contexts
from magnetar.base.errors import ConfigError
from magnetar.client.kafka.cluster import Cluster
from magnetar.client.kafka.entrance import Entrance
from magnetar.client.links import LinksClient
from magnetar.client.login import Login, Server
from magnetar.client.permissions import PermissionsClient
from magnetar.client.pipelines import PipelinesClient
from magnetar.client.replicators import ReplicatorsClient

DEFAULT_URL: Final = "http://127.0.0.1:8080"
_URL: Final = "MAGNETAR_URL"
_TOKEN: Final = "MAGNETAR_TOKEN"  # noqa: S105 - the name of a variable
_PATIENCE_S: Final = 10.0  # as for HTTP
_ANSWER_S: Final = 30.0

Url = Annotated[
    str,
    typer.Option(
        "--admin-url",
        "--url",
        metavar="URL",
        help=f"The server's HTTP address [env {_URL}; {DEFAULT_URL}].",
    ),
]
Context = Annotated[
    str,
    typer.Option(
        "--context",
        metavar="NAME|FILE",
        help=f"Where the server is and how to log in there: see `magnetar context` [env {VARIABLE}; the current one].",
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help=f"The token for servers that require one, or file:///path of it [env {_TOKEN}].",
    ),
]

Brokers = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="Where Kafka's clients connect [as the context says, or port 9092 of the server's host].",
    ),
]


def reached(url: str, context: str) -> Server:
    """The server of these options, or of their defaults.  Raises ConfigError."""
    if not url and not context:
        url, context = os.environ.get(_URL, ""), os.environ.get(VARIABLE, "")
    if url and context:
        raise ConfigError(
            f"the address {url[:200]} and the context {context[:200]} both say where the server is: keep one"
        )
    if url:
        return Server(url)
    if context:
        return Server.of(context)
    current = read_contexts(default_file(os.environ)).current
    return Server.of(current) if current else Server(DEFAULT_URL)


def with_client(command: Callable[..., None]) -> Callable[..., None]:
    """Decorates a command: adds these options to its own, and passes a `client` made from them."""

    def make(server: Server, login: Login) -> PipelinesClient:
        return PipelinesClient(server.url, login=login)

    return _reaching(command, "client", make)


def with_permissions(command: Callable[..., None]) -> Callable[..., None]:
    """As `with_client`, for Pulsar's permissions."""

    def make(server: Server, login: Login) -> PermissionsClient:
        return PermissionsClient(server.url, login=login)

    return _reaching(command, "permissions", make)


def with_replicators(command: Callable[..., None]) -> Callable[..., None]:
    """As `with_client`, for replicators of namespaces and topics."""

    def make(server: Server, login: Login) -> ReplicatorsClient:
        return ReplicatorsClient(server.url, login=login)

    return _reaching(command, "replicators", make)


def with_links(command: Callable[..., None]) -> Callable[..., None]:
    """As `with_client`, for topics that are copies of another cluster's."""

    def make(server: Server, login: Login) -> LinksClient:
        return LinksClient(server.url, login=login)

    return _reaching(command, "links", make)


def with_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """As `with_client`, for commands that use Kafka's protocol: passes a `cluster`, which is reached by the same
    options.

    Its brokers use TLS if the server's HTTP address is https.
    """

    def make(server: Server, login: Login, brokers: str) -> Cluster:
        entrance = Entrance(login, with_tls=server.url.startswith("https:"))
        return Cluster(
            brokers or server.kafka_addresses(),
            patience_s=_PATIENCE_S,
            request_timeout_s=_ANSWER_S,
            entrance=entrance,
        )

    return _reaching(command, "cluster", make, brokers=Brokers)


def _reaching(
    command: Callable[..., None], client: str, make: Callable[..., Any], **more: Any
) -> Callable[..., None]:
    @functools.wraps(command)
    def run(*, url: str, context: str, token: str, **own: Any) -> None:
        server = reached(url, context)
        login = server.login()
        token = token or ("" if login.token else os.environ.get(_TOKEN, ""))
        if token:
            login = Login(ca=login.ca, token=token)
        with closing(make(server, login, *(own.pop(name) for name in more))) as made:
            command(**{client: made}, **own)

    options = {"url": Url, "context": Context, "token": Token, **more}
    parameters = [one for name, one in inspect.signature(command).parameters.items() if name != client] + [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=kind)
        for name, kind in options.items()
    ]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run
