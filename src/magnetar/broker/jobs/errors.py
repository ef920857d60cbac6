"""What can be wrong with a pipeline, or with the worker that runs them."""

from typing import ClassVar

from magnetar.base import error_codes
from magnetar.base.errors import BrokerError
from magnetar.broker.jobs.model import Holder


class PipelineNotFound(BrokerError):
    """No pipeline has this name."""

    code: ClassVar[str] = "PIPELINE_NOT_FOUND"


class PipelineExists(BrokerError):
    """A pipeline with this name exists."""

    code: ClassVar[str] = "PIPELINE_EXISTS"


class InvalidPipeline(BrokerError):
    """A declaration or a report is invalid."""

    code: ClassVar[str] = "INVALID_PIPELINE"


class WorkerBusy(BrokerError):
    """Another worker holds the lease; `wait_s` is when the lease ends unless that worker renews it."""

    code: ClassVar[str] = error_codes.WORKER_BUSY

    def __init__(self, holder: Holder, wait_s: float) -> None:
        super().__init__(f"another worker ({holder.host}, pid {holder.pid}) runs the pipelines")
        self.wait_s = wait_s


class WorkerFenced(BrokerError):
    """This worker's lease has ended, and another worker has it."""

    code: ClassVar[str] = error_codes.WORKER_FENCED
