"""The settings of pipelines, functions and replicators."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.base.replicator_variables import ReplicatorVariables
from magnetar.base.table_roots import TableRoots
from magnetar.broker.jobs.model import PipelineKeys


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Tables of pipelines lie below `table_roots`.  Replicators of a namespace may use those variables of the server's
    `environment` that `variables` says.
    """

    functions_enabled: bool
    table_roots: TableRoots
    keys: PipelineKeys
    environment: Mapping[str, str] = field(repr=False)
    variables: ReplicatorVariables
