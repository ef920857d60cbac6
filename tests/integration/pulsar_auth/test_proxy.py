"""Pulsar's own proxy in front of a server: the proxy and the client for which it acts both need the right."""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess, free_ports
from tests.integration.http_answers import ask
from tests.integration.java_tools import needs_java
from tests.integration.server.wire import eventually
from tests.peers import PEERS_HOME, installed

from .test_pulsar_auth import TOKEN_PROVIDER, Guarded

pytestmark = needs_java
BOTH = ("produce", "consume")


class Proxied(Guarded):
    """A server with authorization, to which clients come by a proxy: a process that runs until `close`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.settings |= {"authorizationEnabled": "true", "superUserRoles": "admin", "proxyRoles": "proxy"}
        self._folder = folder
        self._port, self._web = free_ports(2)
        self._proxy: subprocess.Popen[bytes] | None = None

    def start_proxy(self) -> None:
        installed("pulsar")
        (program,) = PEERS_HOME.glob("apache-pulsar-*/bin/pulsar")
        settings = {
            "clusterName": "standalone",
            "brokerServiceURL": self.server.pulsar_url,
            "brokerWebServiceURL": self.server.http_url,
            "brokerProxyAllowedTargetPorts": "*",
            "brokerProxyAllowedHostNames": "*",
            "brokerProxyAllowedIPAddresses": "*",
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "servicePort": str(self._port),
            "webServicePort": str(self._web),
            "authenticationEnabled": "true",
            "authenticationProviders": TOKEN_PROVIDER,
            "tokenSecretKey": self.settings["tokenSecretKey"],
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{self.token('proxy')}",
        }
        file = self._folder / "proxy.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        memory = "-Xms128m -Xmx128m -XX:MaxDirectMemorySize=128m"
        environment = {
            **os.environ,
            "PULSAR_PROXY_CONF": str(file),
            "PULSAR_MEM": memory,
            "PULSAR_LOG_DIR": str(self._folder),
        }
        with open(self._folder / "proxy.log", "wb") as log:
            self._proxy = subprocess.Popen(
                [str(program), "proxy"], env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        eventually(self._answers, "the proxy answers", 180)

    def _answers(self) -> bool:
        assert self._proxy is not None
        assert self._proxy.poll() is None, (self._folder / "proxy.log").read_text()[-2000:]
        try:
            return self.over_http("alice", "/admin/v2/clusters") != 0
        except OSError:
            return False

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.kill()
            self._proxy.wait()

    def grant(self, role: str, *actions: str) -> None:
        path = f"/admin/v2/namespaces/public/default/permissions/{role}"
        request = urllib.request.Request(
            self.server.http_url + path,
            json.dumps(actions).encode(),
            {"authorization": f"Bearer {self.token('admin')}", "content-type": "application/json"},
            method="POST" if actions else "DELETE",
        )
        with urllib.request.urlopen(request, timeout=60):
            pass

    def produces(self, role: str, topic: str) -> None:
        """Produce and consume by the proxy; raises what the client raises."""
        url = f"pulsar://127.0.0.1:{self._port}"
        client: Any = self.client(pulsar.AuthenticationToken(self.token(role)), timeout_s=30, url=url)
        try:
            consumer = client.subscribe(topic, "s")
            client.create_producer(topic).send(b"hello")
            assert consumer.receive(30_000).data() == b"hello"
        finally:
            client.close()

    def for_another(self, role: str, path: str) -> int:
        """The status of an answer to a proxy that names a client of its own over HTTP."""
        headers = {"authorization": f"Bearer {self.token('proxy')}", "X-Original-Principal": role}
        return ask(self.server.http_url + path, headers)[0]

    def over_http(self, role: str, path: str) -> int:
        """The status of an answer that comes by the proxy."""
        headers = {"authorization": f"Bearer {self.token(role)}"}
        return ask(f"http://127.0.0.1:{self._web}{path}", headers)[0]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    one = Proxied(tmp_path_factory.mktemp("keys"))
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        try:
            one.start_proxy()
            yield one
        finally:
            one.close()
        assert "Traceback" not in server.log


@pytest.mark.parametrize("missing", ["alice", "proxy"])
def test_a_client_and_its_proxy_both_need_the_right(proxied: Proxied, missing: str) -> None:
    path = "/admin/v2/persistent/public/default/seen/stats"
    for role in ("alice", "proxy"):
        proxied.grant(role, *BOTH)
    proxied.produces("alice", "seen")
    assert proxied.for_another("alice", path) == 200
    proxied.grant(missing)
    with pytest.raises(pulsar.AuthorizationError):
        proxied.produces("alice", "seen")
    assert proxied.for_another("alice", path) == 401


def test_a_super_user_has_no_more_rights_than_its_proxy(proxied: Proxied) -> None:
    proxied.grant("proxy")
    with pytest.raises(pulsar.AuthorizationError):
        proxied.produces("admin", "seen")
    assert proxied.for_another("admin", "/admin/v2/tenants") == 401
    assert proxied.get("/admin/v2/tenants", proxied.token("admin"))[0] == 200


def test_http_clients_come_by_the_proxy_as_themselves(proxied: Proxied) -> None:
    """The proxy passes their tokens on, so nothing is asked about it."""
    proxied.grant("proxy")
    assert proxied.over_http("admin", "/admin/v2/tenants") == 200
    assert proxied.over_http("alice", "/admin/v2/tenants") == 401
