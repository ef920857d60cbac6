"""`secure`: the settings that it stands for, which an operator could also write.

The rest of the server does not know of it, except the part that makes the files which these settings name
(`server/security_folder.py`).  Every port uses TLS:  Kafka's as SASL_SSL with tokens, or passwords of SCRAM, Pulsar's
as pulsar+ssl and HTTP as https, with tokens; the ports without TLS are closed.  `kafka.port`, `pulsar.port` and
`http.port`, where they are set, say on which ports that is.

Other settings of how clients connect contradict it, and the server refuses to start.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from magnetar.base.errors import ConfigError
from magnetar.base.paths import absolute_path
from magnetar.base.settings_audit import AUDIT_LOG
from magnetar.base.settings_authentication import AUTHENTICATION_NAMES, PROVIDERS, TOKEN
from magnetar.base.settings_authorization import AUTHORIZATION_NAMES
from magnetar.base.settings_network import bare_host
from magnetar.base.settings_pipelines import WORKER_CONTEXT
from magnetar.base.settings_sasl import PLAIN, SASL_NAMES, SCRAM_SHA_256, SCRAM_SHA_512
from magnetar.base.settings_table import SERVER_KEYS
from magnetar.base.settings_tls import KAFKA_NAMES, PULSAR_NAMES, PULSAR_TLS_PORTS
from magnetar.base.settings_values import Setting

SECURE: Final = "secure"
FOLDER: Final = "security"  # in the data directory
SERVER_FILE: Final = "server.pem"
CA_FILE: Final = "ca.pem"
KEY_FILE: Final = "token.key"
TOKEN_FILE: Final = "admin.token"  # noqa: S105 - the name of a file
WORKER_FILE: Final = "worker.toml"
AUDIT_FILE: Final = "audit.log"  # in the data directory
ADMINISTRATOR: Final = "admin"
PULSAR_PORT: Final = "6651"
HTTP_PORT: Final = "8443"

_ORIGIN: Final = "--secure"
# Settings of times and sizes, and of the ports.
_FREE: Final = {
    *PULSAR_TLS_PORTS,
    "authenticationRefreshCheckSeconds",
    "connection.failed.authentication.delay.ms",
    "sasl.server.max.receive.size",
    *(name for name in SASL_NAMES if name.endswith("connections.max.reauth.ms")),
}
_CONTRADICT: Final = (
    {
        "pulsar.bind.addresses",
        "listeners",
        "listener.security.protocol.map",
        "messagingProtocols",
        WORKER_CONTEXT,
    }
    | KAFKA_NAMES
    | PULSAR_NAMES
    | SASL_NAMES
    | AUTHENTICATION_NAMES
    | AUTHORIZATION_NAMES
) - _FREE


def secured(given: Mapping[str, Setting], own: Iterable[tuple[str, str]]) -> dict[str, Setting]:
    """The given settings together with those of `secure`; `own` has the keys of single listeners.

    Raises:
        ConfigError: some of it contradicts them.
    """
    for name, setting in given.items():
        if name in _CONTRADICT:
            raise ConfigError(
                f"{name} ({setting.origin}) and secure ({given[SECURE].origin}) both say how clients come in: keep one"
                " of them"
            )
    for listener, name in own:
        raise ConfigError(
            f"{name} of listener {listener} and secure ({given[SECURE].origin}) both say how clients come in: keep one"
            " of them"
        )

    def text(name: str) -> str:
        return given[name].text if name in given else SERVER_KEYS[name].default or ""

    folder = absolute_path("data.dir", text("data.dir")) / FOLDER
    host = bare_host(text("host"))
    host = f"[{host}]" if ":" in host else host
    provider = next(one for one, method in PROVIDERS.items() if method == TOKEN)
    derived = {
        "listeners": f"SASL_SSL://{host}:{text('kafka.port')}",
        "sasl.enabled.mechanisms": ",".join((PLAIN, SCRAM_SHA_256, SCRAM_SHA_512)),
        "ssl.keystore.location": str(folder / SERVER_FILE),
        "pulsar.port": "",
        "brokerServicePortTls": _tls_port(given, "pulsar.port", "brokerServicePortTls", PULSAR_PORT),
        "http.port": "",
        "webServicePortTls": _tls_port(given, "http.port", "webServicePortTls", HTTP_PORT),
        "tlsCertificateFilePath": str(folder / SERVER_FILE),
        "tlsKeyFilePath": str(folder / SERVER_FILE),
        "authenticationEnabled": "true",
        "authenticationProviders": provider,
        "tokenSecretKey": (folder / KEY_FILE).as_uri(),
        "authorizationEnabled": "true",
        "superUserRoles": ADMINISTRATOR,
        WORKER_CONTEXT: str(folder / WORKER_FILE),
    }
    if AUDIT_LOG not in given:  # it may be elsewhere, or off
        derived[AUDIT_LOG] = AUDIT_FILE
    settings = {name: one for name, one in given.items() if name != "kafka.port"}
    return settings | {name: Setting(value, _ORIGIN) for name, value in derived.items()}


def _tls_port(given: Mapping[str, Setting], name: str, tls_name: str, default: str) -> str:
    """The port with TLS: the value of `tls_name`, or else the value of the port without TLS."""
    port, tls_port = (given[key].text if key in given else "" for key in (name, tls_name))
    if port and tls_port:
        raise ConfigError(
            f"{name} ({given[name].origin}) and {tls_name} ({given[tls_name].origin}) both say where to listen, and"
            f" secure opens no port without TLS: keep {tls_name}"
        )
    return port or tls_port or default
