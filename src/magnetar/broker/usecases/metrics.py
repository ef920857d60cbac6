"""The server's numbers, for programs that watch it."""

from collections.abc import Awaitable, Callable
from functools import partial

from magnetar.base.metrics import Metrics
from magnetar.broker.compaction.metrics import declare_compaction_metrics
from magnetar.broker.interop.interop import Interop
from magnetar.broker.interop.metrics import declare_interop_metrics
from magnetar.broker.jobs.functions import Functions
from magnetar.broker.jobs.metrics import declare_function_metrics, declare_pipeline_metrics
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation
from magnetar.broker.telemetry.clients import TelemetryClients
from magnetar.broker.telemetry.metrics import declare_telemetry_metrics
from magnetar.broker.transactions.metrics import declare_transaction_metrics
from magnetar.broker.upkeep.metrics import GroupProgress, Measured, declare_broker_metrics


class MetricsCases:
    """See the module's text."""

    def __init__(
        self,
        access: AccessControl,
        broker: Measured,
        interop: Interop,
        pipelines: Pipelines,
        functions: Functions,
        telemetry: TelemetryClients,
    ) -> None:
        self._access = access
        self._broker = broker
        self._interop = interop
        self._pipelines = pipelines
        self._functions = functions
        self._telemetry = telemetry

    def declare(self, metrics: Metrics) -> Callable[[Caller], Awaitable[None]]:
        """Add the broker's numbers to `metrics`, once.

        Returns a function that reads what only the event loop can read; after it the metrics can be rendered.  It
        raises ClusterNotAuthorized.
        """
        declare_broker_metrics(metrics, self._broker)
        broker = self._broker
        declare_compaction_metrics(metrics, broker.compactor, broker.beside, broker.compaction)
        declare_interop_metrics(metrics, self._interop)
        declare_pipeline_metrics(metrics, self._pipelines)
        declare_function_metrics(metrics, self._functions)
        declare_telemetry_metrics(metrics, self._telemetry)
        declare_transaction_metrics(metrics, broker.pulsar_transactions)
        return partial(self._refresh, GroupProgress(metrics, self._broker))

    async def _refresh(self, progress: GroupProgress, caller: Caller) -> None:
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)
        await progress.refresh()
