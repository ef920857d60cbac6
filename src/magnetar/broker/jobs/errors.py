"""The errors of pipelines, of their worker, and of replicators."""

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


class InvalidReplicator(BrokerError):
    """A configuration of replicators cannot be used."""

    code: ClassVar[str] = "INVALID_REPLICATOR"


class LinkNotFound(BrokerError):
    """The topic is not linked."""

    code: ClassVar[str] = "LINK_NOT_FOUND"


class ReplicatorNotFound(BrokerError):
    """There is no such replicator or configuration, or no configuration means the topic."""

    code: ClassVar[str] = "REPLICATOR_NOT_FOUND"


class ReplicatorExists(BrokerError):
    """The topic has this replicator already."""

    code: ClassVar[str] = "REPLICATOR_EXISTS"


class ReplicatorBusy(BrokerError):
    """A replicator of this name is still being stopped."""

    code: ClassVar[str] = "REPLICATOR_BUSY"


class InvalidFunction(BrokerError):
    """A function's declaration, or what is asked of its state, is invalid or not served."""

    code: ClassVar[str] = "INVALID_FUNCTION"


class FunctionExists(BrokerError):
    """The namespace has a function with this name."""

    code: ClassVar[str] = "FUNCTION_EXISTS"


class FunctionBusy(BrokerError):
    """The function is being deleted, or a process of it has not ended in time."""

    code: ClassVar[str] = "FUNCTION_BUSY"


class FunctionTimedOut(BrokerError):
    """The client that triggered a function got no output in time."""

    code: ClassVar[str] = "FUNCTION_TIMED_OUT"


class FunctionNotFound(BrokerError):
    """There is no such function, instance or state of it."""

    code: ClassVar[str] = "FUNCTION_NOT_FOUND"


class FunctionsDisabled(BrokerError):
    """This server runs no functions."""

    code: ClassVar[str] = "FUNCTIONS_DISABLED"
