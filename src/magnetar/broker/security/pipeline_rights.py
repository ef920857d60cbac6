"""A pipeline's own resources: what its query needs besides its topics, and no other client can use.

Its names are made from the pipeline's, which no other pipeline has; no rule has to be about them:

* the subscription `pipeline-NAME`, which keeps its place in its topics (of each topic it takes READ on the topic, too).
  The subscription of a replicator is named after type and region instead (`replicators/naming.py`)
* transactional ids that begin with `pipeline-NAME:`, and groups that begin with `spark-sink-pipeline-NAME:`, where the
  sink notes which batches are decided
* the topic `__spark_sink` of the namespace of Kafka's clients, which these notes are about and which never has a
  record: to make it and to describe it

For its topics, the pipeline needs its owner's rights.
"""

from typing import Final

from magnetar.base.names import PERSISTENT
from magnetar.broker.security.model import OF_PIPELINE, Caller, Operation, Resource, ResourceType
from magnetar.replicators.naming import subscription_of

NOTES_TOPIC: Final = "__spark_sink"
_NOTES_GROUP: Final = "spark-sink-"
_OPERATIONS: Final = {
    ResourceType.SUBSCRIPTION: (Operation.READ, Operation.DESCRIBE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.TOPIC: (Operation.CREATE, Operation.DESCRIBE),
}


def notes_topic_in(namespace: str) -> str:
    """The full name of the topic that notes are about; `namespace` is that of Kafka's clients (`tenant/namespace`)."""
    return f"{PERSISTENT}{namespace}/{NOTES_TOPIC}"


def is_own(caller: Caller, operation: Operation, resource: Resource, notes_topic: str) -> bool:
    """Whether a resource is the own one of the pipeline that the caller is, if it is one."""
    kind, name, _ = resource
    if not caller.pipeline or operation not in _OPERATIONS.get(kind, ()):
        return False
    own = OF_PIPELINE + caller.pipeline
    if kind is ResourceType.SUBSCRIPTION:
        place = subscription_of(caller.pipeline) or own
        return name == place or name.startswith(f"{_NOTES_GROUP}{own}:")
    if kind is ResourceType.TRANSACTIONAL_ID:
        return name.startswith(f"{own}:")
    return name == notes_topic
