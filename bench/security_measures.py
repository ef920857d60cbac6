"""What TLS, logins, rules and quotas cost.

TLS and logins are measured beside Apache Kafka with the same settings.  Rules and quotas are measured beside Magnetar
without them, one server after the other, by requests of one record: each is asked for its right to the topic and
counted for its quotas.
"""

from bench import admin, client, process
from bench.client import Librdkafka
from bench.logins import MECHANISM, Logins
from bench.measures import (
    HEADLINE_PARTITIONS,
    SINGLE_SIZE,
    Effort,
    Measure,
    Tools,
    Watch,
    produce_and_consume,
)
from bench.process import RunFailed
from bench.servers import HOST, Server
from bench.stats import Better, Figure, Samples

TABLE = "security"  # of the report, for what is compared with Magnetar itself
TLS_SIZE = 1024
LOGINS = 4_000
LOGINS_AT_ONCE = 8
LOGINS_WARM_UP = 2_000
USER, PASSWORD = "bench", "bench-secret"
SINGLE_WARM_UP = 20_000
CLIENT_ID = "rdkafka"  # librdkafka's own
NEVER_REACHED = 10_000_000_000  # bytes a second

_TLS = (
    "listeners=PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{secured}",
    "ssl.keystore.type=PEM",
    "ssl.keystore.location={certificate}",
)
_SASL = (
    "listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{secured}",
    f"sasl.enabled.mechanisms={MECHANISM}",
)
_SCRAM_OF_KAFKA = (
    f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config="
    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
)
GUARDED = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:admin",
    "allow.everyone.if.no.acl.found=true",
)


def _of_kafka(*settings: str) -> tuple[str, ...]:
    """The same for Kafka's combined node, which has its controller's listener among the others."""
    listeners, *others = settings
    return (
        f"{listeners},CONTROLLER://127.0.0.1:{{controller}}",
        listeners.replace("listeners=", "advertised.listeners="),
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        *others,
    )


def tls(server: Server, _tools: Tools, effort: Effort) -> Samples:
    """Produce a backlog over TLS, then read it back over TLS."""
    speaker = Librdkafka(client.build(client.WORK, lambda _: None, tls=True))
    settings = ("security.protocol=ssl", f"ssl.ca.location={server.authority.certificate}")
    with admin.topic(server.bootstrap, "bench-tls", HEADLINE_PARTITIONS) as topic:
        return produce_and_consume(
            server,
            speaker,
            topic,
            TLS_SIZE,
            HEADLINE_PARTITIONS,
            effort.bulk_bytes // TLS_SIZE,
            bootstrap=server.secured,
            settings=settings,
        )


def logins(server: Server, _tools: Tools, _effort: Effort) -> Samples:
    """Connections that log in by SCRAM and end, eight at a time."""
    admin.set_password(server.bootstrap, USER, PASSWORD)
    load = Logins(HOST, server.secured_port, USER, PASSWORD)
    load.run(count=LOGINS_WARM_UP, at_once=LOGINS_AT_ONCE)
    before = process.cpu_time(server.pid)
    seconds = load.run(count=LOGINS, at_once=LOGINS_AT_ONCE)
    cpu = process.cpu_time(server.pid) - before
    return {"logins_s": [LOGINS / seconds], "login_cpu_us": [cpu.total / LOGINS * 1e6]}


def guarded(server: Server, tools: Tools, effort: Effort) -> Samples:
    """Requests of one record without rules and quotas, then with both."""
    if tools.java is None:
        raise RunFailed("the peers' kafka script is not here, and with it Kafka's tools")
    found: Samples = {}
    for name, settings in (("open", ()), ("guarded", GUARDED)):
        server.settings = settings
        server.start()
        with admin.topic(server.bootstrap, "bench-guarded", HEADLINE_PARTITIONS) as topic:
            if settings:
                admin.allow_all(server.bootstrap, topic)
                tools.java.set_client_quota(server.bootstrap, CLIENT_ID, NEVER_REACHED)
            found[f"{name}_cpu_us"] = [_cpu_of_a_request(server, tools, topic, effort.single_count)]
        server.stop()
    return found


def _cpu_of_a_request(server: Server, tools: Tools, topic: str, count: int) -> float:
    settings = ("linger.ms=0", "batch.num.messages=1")
    produce = tools.client.produce
    produce(server.bootstrap, topic, size=SINGLE_SIZE, count=SINGLE_WARM_UP, settings=settings)
    watch = Watch(server)
    load = produce(server.bootstrap, topic, size=SINGLE_SIZE, count=count, settings=settings)
    cpu, _ = watch.stop(load.finished.cpu)
    return cpu.total / count * 1e6


SECURITY_MEASURES: tuple[Measure, ...] = (
    Measure(
        "tls",
        "1 KiB records over TLS",
        (
            Figure("produce_mb_s", "produce 1KiB over TLS", "MB/s", Better.HIGHER, 1.0, 1.5),
            Figure("produce_cpu_s_gb", "produce 1KiB over TLS, server CPU", "s/GB", Better.LOWER),
            Figure("consume_mb_s", "consume 1KiB over TLS", "MB/s", Better.HIGHER, 1.0, 1.5),
            Figure("consume_cpu_s_gb", "consume 1KiB over TLS, server CPU", "s/GB", Better.LOWER),
        ),
        tls,
        settings=_TLS,
        peer_settings=_of_kafka(*_TLS),
    ),
    Measure(
        "logins",
        f"logins by {MECHANISM}",
        (
            Figure("logins_s", f"logins by {MECHANISM}", "1/s", Better.HIGHER),
            Figure("login_cpu_us", f"a login by {MECHANISM}, server CPU", "us", Better.LOWER),
        ),
        logins,
        settings=_SASL,
        peer_settings=(*_of_kafka(*_SASL), _SCRAM_OF_KAFKA),
    ),
    Measure(
        "guarded",
        "one record per request, with rules and quotas",
        (
            Figure(
                "guarded_cpu_us",
                "one record per request with rules and quotas, server CPU",
                "us/request",
                Better.LOWER,
                1.03,
                against="open_cpu_us",
            ),
        ),
        guarded,
        fresh=True,
        peer="",
        table=TABLE,
    ),
)
