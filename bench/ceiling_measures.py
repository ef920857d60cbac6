"""What the client limits, not the server: its own ceiling, and both with a processor of their own."""

import contextlib

from bench import admin, process
from bench.measures import HEADLINE_PARTITIONS, SIZES, Effort, Measure, Run, Tools, produce_and_consume
from bench.servers import KAFKA, SINK, Server
from bench.stats import Better, Figure, Samples

SERVER_CORE, CLIENT_CORE = 0, 1


def ceiling(size: int) -> Run:
    """As `measures.bulk`; a sink has every topic, and takes the size of records from its name."""

    def run(server: Server, tools: Tools, effort: Effort) -> Samples:
        name = f"bench-ceiling-{size}"
        made = admin.topic(server.bootstrap, name, HEADLINE_PARTITIONS)
        with contextlib.nullcontext() if server.name == SINK else made:
            count = effort.bulk_bytes // size
            return produce_and_consume(server, tools.client, name, size, HEADLINE_PARTITIONS, count)

    return run


def apart(size: int) -> Run:
    """As `measures.bulk`, with one processor for the server and another one for the client."""

    def run(server: Server, tools: Tools, effort: Effort) -> Samples:
        client = tools.client.on(CLIENT_CORE)
        with (
            process.on_core(server.pid, SERVER_CORE),
            admin.topic(server.bootstrap, f"bench-apart-{size}", HEADLINE_PARTITIONS) as topic,
        ):
            count = effort.bulk_bytes // size
            return produce_and_consume(server, client, topic, size, HEADLINE_PARTITIONS, count)

    return run


def _figures(size: str, what: str) -> tuple[Figure, ...]:
    return (
        Figure("produce_messages_s", f"produce {size}, {what}", "msg/s", Better.HIGHER),
        Figure("produce_cpu_s_gb", f"produce {size}, {what}, server CPU", "s/GB", Better.LOWER),
        Figure("consume_messages_s", f"consume {size}, {what}", "msg/s", Better.HIGHER),
        Figure("consume_cpu_s_gb", f"consume {size}, {what}, server CPU", "s/GB", Better.LOWER),
    )


def _ceiling(size: str) -> Measure:
    title = f"{size} records, beside the client's ceiling"
    figures = _figures(size, "beside the client's ceiling")
    return Measure(f"ceiling-{size}", title, figures, ceiling(SIZES[size]), repeated=False, peer=SINK)


def _apart(size: str) -> Measure:
    title = f"{size} records, server and client each on a core"
    figures = _figures(size, "a core each")
    return Measure(f"apart-{size}", title, figures, apart(SIZES[size]), repeated=False, peer=KAFKA)


CEILING_MEASURES: tuple[Measure, ...] = (
    *(_ceiling(size) for size in ("100B", "1KiB")),
    *(_apart(size) for size in ("100B", "1KiB")),
)
