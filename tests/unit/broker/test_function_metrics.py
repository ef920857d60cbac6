"""Functions in numbers, by Pulsar's names."""

import asyncio
from dataclasses import replace

from magnetar.base.exposition import render
from magnetar.base.metrics import Metrics
from magnetar.broker.jobs.function_model import new_function
from magnetar.broker.jobs.metrics import declare_function_metrics
from magnetar.broker.jobs.model import InstanceSays
from magnetar.broker.security.model import Principal
from magnetar.testing.metadata import MemoryMetadataStore
from tests.unit.broker.function_world import functions_in

CONFIG = {"className": "f.process", "inputs": ["in"], "parallelism": 2}
MADE = new_function("public", "default", "f", CONFIG, "f.py", Principal("User", "alice"))
SAYS = InstanceSays(
    running=True,
    restarts=4,
    numbers={
        "receivedTotal": 9,
        "processedSuccessfullyTotal": 6,
        "userExceptionsTotal": 2,
        "systemExceptionsTotal": 1,
    },
    last_invocation_ms=250_000,
)


def test_each_instance_has_its_numbers_under_pulsars_names() -> None:
    async def main() -> None:
        functions = functions_in(MemoryMetadataStore())
        metrics = Metrics()
        declare_function_metrics(metrics, functions)
        made = await functions.create(MADE, b"code")
        functions.heard(made, 1, replace(SAYS))
        shown = render(metrics).decode().splitlines()
        for instance, numbers in (("0", (0, 0, 0, 0, 0, 0, 0)), ("1", (9, 6, 2, 1, 250_000, 4, 1))):
            labels = (
                f'{{cluster="standalone",fqfn="public/default/f",instance_id="{instance}",name="f",'
                'namespace="public/default",tenant="public"}'
            )
            names = (
                "pulsar_function_received_total",
                "pulsar_function_processed_successfully_total",
                "pulsar_function_user_exceptions_total",
                "pulsar_function_system_exceptions_total",
                "pulsar_function_last_invocation",
                "magnetar_function_restarts_total",
                "magnetar_function_running",
            )
            for name, number in zip(names, numbers, strict=True):
                assert f"{name}{labels} {float(number)}" in shown

    asyncio.run(main())
