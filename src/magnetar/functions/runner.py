"""`python -m magnetar.functions.runner`: the process of one instance, which the server starts and watches.

It takes its orders from standard input, limits its own memory and files, gives up the server's, imports the function,
and processes messages until SIGTERM.  Nothing that the function raises ends the process.  A call that takes longer than
`timeoutMs`, or that needs more memory than there is, may end it, and the server starts another process.
"""

import logging
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from magnetar.base.clock import SystemClock
from magnetar.functions.channel import Channel
from magnetar.functions.code import CodeError, function_of, open_code
from magnetar.functions.confinement import confine
from magnetar.functions.counts import Counts

REPORT_S: Final = 1.0
OWN_BYTES: Final = 256 << 20  # what the client library and the interpreter take, besides the function
FILE_BYTES_MAX: Final = 256 << 20  # of its log, too, which the server cuts now and then
_FAILED: Final = 1
_TOO_LONG: Final = 75
_LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TROUBLE_CHARS_MAX: Final = 4000


def main() -> int:
    """Run one instance; returns the process's exit code."""
    channel = Channel()
    orders = channel.orders()
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT, stream=sys.stderr)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    try:
        _limit(orders["config"]["resources"]["ram"])
        code_file = Path(orders["code_file"])
        # Before there is a user's code, or a thread, which would keep everything.
        confine(code_file.parent, [Path(one) for one in orders["readable"]], Path(orders["hidden"]))
        open_code(code_file)
        _run(orders, channel, stop)
    except CodeError as error:
        return _failed(channel, str(error))
    except BaseException:  # noqa: BLE001  a user's code may raise anything, also SystemExit
        return _failed(channel, traceback.format_exc())
    return 0


def _failed(channel: Channel, text: str) -> int:
    logging.getLogger(__name__).error("the instance cannot run: %s", text)
    channel.say("failed", text[-_TROUBLE_CHARS_MAX:])
    return _FAILED


def _limit(ram_bytes: int) -> None:
    bound = ram_bytes + OWN_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))


def _run(orders: Mapping[str, Any], channel: Channel, stop: threading.Event) -> None:
    # Here, so that an instance without them says so.
    import pulsar

    from magnetar.functions.context import FunctionContext
    from magnetar.functions.effectively_once import OutputsOnce
    from magnetar.functions.log_topic import LogTopic
    from magnetar.functions.processing import Processing
    from magnetar.functions.producers import Producers
    from magnetar.functions.schemas import output_of
    from magnetar.functions.triggering import Triggering

    config = orders["config"]
    full_name = f"{config['tenant']}/{config['namespace']}/{config['name']}"
    properties = {
        "application": "pulsar-function",
        "id": full_name,
        "instance_id": str(orders["instance"]),
    }
    clock = SystemClock()
    counts = Counts(clock)
    callee = function_of(config["className"])
    client = _client_of(orders)
    producers = Producers(client, properties)
    logger = logging.getLogger(f"function.{config['name']}")
    if config.get("logTopic"):
        logger.addHandler(LogTopic(producers, config["logTopic"], full_name))
    once = None
    if config["processingGuarantees"] == "EFFECTIVELY_ONCE" and config.get("output"):
        _check_unpartitioned(client, config["output"])
        once = OutputsOnce(
            client, f"{full_name} {orders['id']}", config["output"], output_of(config).schema, properties
        )
    processing = Processing(config, client, counts, producers, once, clock)
    context = FunctionContext(orders, channel, counts, producers, logger, processing.acknowledge)
    channel.listen(Triggering(channel, client, config, properties, clock).take)
    try:
        processing.subscribe(config.get("subName") or full_name, properties)
    except pulsar.PulsarException as error:
        raise CodeError(f"the function cannot subscribe to its inputs: {error}") from None
    working = threading.Thread(target=processing.run, args=(callee, context), name="function", daemon=True)
    working.start()
    channel.say("running", True)
    while not stop.wait(REPORT_S) and working.is_alive():
        _end_if_late(channel, processing.call_takes_s(), config.get("timeoutMs") or 0)
        channel.say("report", counts.report())
    processing.stop()
    working.join()
    producers.flush()
    channel.say("report", counts.report())
    client.close()


def _client_of(orders: Mapping[str, Any]) -> Any:
    import pulsar

    return pulsar.Client(
        orders["service_url"],
        authentication=pulsar.AuthenticationToken(orders["token"]),
        logger=logging.getLogger("pulsar"),
    )


def _end_if_late(channel: Channel, call_takes_s: float, timeout_ms: int) -> None:
    """End the process if the function's present call takes longer than it may: no thread can be stopped."""
    if timeout_ms and call_takes_s * 1000 > timeout_ms:
        channel.say("failed", f"a call of the function took longer than {timeout_ms} ms")
        os._exit(_TOO_LONG)


def _check_unpartitioned(client: Any, output: str) -> None:
    if client.get_topic_partitions(output) != [output]:
        raise CodeError("the output of a function with EFFECTIVELY_ONCE must not be a partitioned topic")


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # threads that the function has started do not hold the process
