"""A command beside a fresh broker on the ports that Pulsar's own tests have built in: 6650, 6651 (TLS) and 8080.

    python fixed_ports.py [--own-network] [--open] --broker magnetar|pulsar --logs DIR --tests DIR -- COMMAND...

With `--own-network` it expects to be started by `unshare -rn`: a network of its own, where no other
process can hold these ports.  Two things are prepared there: the loopback interface is down at first, and
192.0.2.1 (a test address, RFC 5737) is made a host that lets no connection come about, for the test that
waits for a connection timeout.  Otherwise both ports must be free.

The broker asks who clients are, as the one that the tests' own scripts start: it takes certificates, tokens and
passwords, and clients that show nothing are `anonymous`.  It gets the tenants, namespaces and permissions that those
scripts make, and the certificates and passwords in `DIR/test-conf`, where `--tests` is DIR; the token that the tests
read is written there.  With `--open` it asks nothing of clients.
Exit code: that of COMMAND, or `SETUP_FAILED` with one sentence on standard output.
"""

import argparse
import contextlib
import fcntl
import secrets
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import brokers
import jwt
import rest
from fetch import SetupFailed

from magnetar.testing.ports import is_free

PULSAR_PORT = 6650
PULSAR_TLS_PORT = 6651
HTTP_PORT = 8080
SETUP_FAILED = 86
SILENT_HOST = ("192.0.2.1", 1234)
PROVIDERS = ("Tls", "Token", "Basic")
ANONYMOUS = "anonymous"
SUPER_USER = "superUser"
TOKEN_ROLE = "token-principal"
TOKEN_FILE = ".test-token.txt"

_SIOCSIFADDR, _SIOCSIFFLAGS = 0x8916, 0x8914  # netdevice(7)
_IFF_UP = 0x1


def main() -> int:
    options, command = _parse()
    # A shell starts what it runs in the background with SIGINT ignored, which children inherit: one test sends it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with contextlib.ExitStack() as stack:
            if options.own_network:
                _bring_up("lo")
                _add_address("lo:1", SILENT_HOST[0])
                stack.enter_context(_silent(SILENT_HOST))
            elif taken := [port for port in (PULSAR_PORT, PULSAR_TLS_PORT, HTTP_PORT) if not is_free(port)]:
                raise SetupFailed(
                    f"port {' and '.join(map(str, taken))} is taken, and these tests know no other"
                )
            start = brokers.magnetar_with_pulsar if options.broker == "magnetar" else brokers.apache_pulsar
            secret = secrets.token_bytes(32)
            file = options.tests / "secret.key"
            file.write_bytes(secret)
            profile = brokers.Profile({} if options.open else _settings(options.tests / "test-conf", file))
            addresses = stack.enter_context(
                start(profile, options.logs / "server.log", ports=(PULSAR_PORT, HTTP_PORT))
            )
            (options.tests / TOKEN_FILE).write_text(_token(TOKEN_ROLE, secret))
            if not options.open:
                _make_namespaces(addresses.http, _token(SUPER_USER, secret))
            return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    except SetupFailed as failure:
        print(failure, flush=True)
        return SETUP_FAILED


def _parse() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--own-network", action="store_true")
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--broker", choices=("magnetar", "pulsar"), required=True)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--tests", type=Path, required=True)
    mark = sys.argv.index("--")
    return parser.parse_args(sys.argv[1:mark]), sys.argv[mark + 1 :]


def _settings(files: Path, secret: Path) -> dict[str, str]:
    """Those of the tests' own `standalone-ssl.conf` that are about who clients are."""
    package = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
    return {
        "brokerServicePortTls": str(PULSAR_TLS_PORT),
        "tlsCertificateFilePath": str(files / "broker-cert.pem"),
        "tlsKeyFilePath": str(files / "broker-key.pem"),
        "tlsTrustCertsFilePath": str(files / "cacert.pem"),
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(f"{package}{one}" for one in PROVIDERS),
        "tokenSecretKey": f"file://{secret}",
        "basicAuthConf": f"file://{files / '.htpasswd'}",
        "anonymousUserRole": ANONYMOUS,
        "authorizationEnabled": "true",
        "superUserRoles": f"localhost,{SUPER_USER},admin",
    }


def _token(role: str, secret: bytes) -> str:
    return jwt.encode({"sub": role}, secret, "HS256")


def _make_namespaces(http: str, token: str) -> None:
    """As the set-up of the client's own tests does."""
    rest.wait_for_cluster(http, token)
    both = ["produce", "consume"]
    for namespace in ("public/default", "public/default-2"):
        rest.make_namespace(http, namespace, {ANONYMOUS: both}, token, admins=(ANONYMOUS,))
    rest.make_namespace(http, "private/auth", {TOKEN_ROLE: both}, token)


def _bring_up(interface: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", interface.encode(), _IFF_UP))


def _add_address(alias: str, address: str) -> None:
    where = struct.pack("=H2x4s8x", socket.AF_INET, socket.inet_aton(address))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s", alias.encode(), where))


@contextlib.contextmanager
def _silent(address: tuple[str, int]) -> Iterator[None]:
    """A port whose queue of connections is full: the kernel drops what else asks for one."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(address)
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield


if __name__ == "__main__":
    raise SystemExit(main())
