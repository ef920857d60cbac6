"""Connections for lines to Pulsar's servers: what is left of one that comes to nothing."""

import socket
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.client.login import Login
from magnetar.client.pulsar_line import LineLost, connection_to


def test_a_connection_is_closed_if_there_are_no_certificates_to_trust(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.touch()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with pytest.raises(ConfigError, match="the certificates to trust cannot be read"):
            connection_to(listening.getsockname(), Login(ca=str(empty)), with_tls=True)
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(60)
            assert accepted.recv(1) == b"", "the client has closed it"


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = listening.getsockname()
    with pytest.raises(LineLost, match="Connection refused"):
        connection_to(place, Login(), with_tls=False)
