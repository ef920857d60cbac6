"""How reading asks the broker, and what the broker's refusals mean to a Spark user.

A process keeps one client for each server: a Python worker serves many tasks, and a new connection costs more than
most questions.  Nothing of this is pickled.
"""

import os
from collections.abc import Callable
from typing import Final, TypeVar

from magnetar.client.errors import ClientError, Unreachable
from magnetar.client.login import Server
from magnetar.client.rest import RestClient
from magnetar.pipelines.connector.read.errors import SourceError

LEASE_S: Final = 600.0

T = TypeVar("T")

_clients: dict[tuple[int, Server, float], RestClient] = {}


def client_of(server: Server, timeout_s: float) -> RestClient:
    """This process's client for `server`; it retries for `timeout_s`.  Raises ConfigError."""
    key = (os.getpid(), server, timeout_s)  # a forked worker must not share its parent's connections
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = RestClient(server.url, retry_s=timeout_s, login=server.login())
    return client


def asked(ask: Callable[[], T], *, url: str, timeout_s: float) -> T:
    """The answer to `ask`.

    Raises:
        SourceError: the broker does not answer, or refuses; with the next step.
    """
    try:
        return ask()
    except Unreachable as error:
        raise SourceError(
            f"the broker at {url} has not answered for {timeout_s:g} s ({error}); start it or correct admin.url,"
            " and run this again (kafkaConsumer.pollTimeoutMs says how long it is waited for)"
        ) from error
    except ClientError as error:
        raise SourceError(f"the broker at {url} refused: {error}") from error
