"""What is a pipeline's own, and what is not: of the owner's it has no more than the rules say."""

import pytest

from magnetar.broker.security.audit import Audit
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.errors import NotAuthorized
from magnetar.broker.security.model import (
    CLUSTER,
    Caller,
    Operation,
    Principal,
    Resource,
    ResourceType,
    group_resource,
    pipeline_resource,
    subscription_resource,
    topic_resource,
    transactional_id_resource,
)
from magnetar.testing.clock import FakeClock

FULL = "persistent://public/default/"
READ, WRITE, CREATE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE
OWNER = Principal("User", "alice")
QUERY = Caller(OWNER, by_token=True, pipeline="a")


class OneTopic:
    """Allows alice to read `mine` and nothing else."""

    tells_hosts_apart = False

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return resource == topic_resource(FULL + "mine") and operation is READ

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        return False


ACCESS = AccessControl(OneTopic(), Audit(FakeClock()), "public/default")
OWN = [
    (READ, group_resource("pipeline-a")),
    (DESCRIBE, group_resource("pipeline-a")),
    (READ, subscription_resource(FULL + "mine", "pipeline-a")),
    (READ, group_resource("spark-sink-pipeline-a:6c0e-1")),
    (WRITE, transactional_id_resource("pipeline-a:6c0e-1")),
    (DESCRIBE, transactional_id_resource("pipeline-a:6c0e-1")),
    (CREATE, topic_resource(FULL + "__spark_sink")),
    (DESCRIBE, topic_resource(FULL + "__spark_sink")),
    (READ, topic_resource(FULL + "mine")),
]
NOT_OWN = [
    (READ, topic_resource(FULL + "other")),
    (WRITE, topic_resource(FULL + "mine")),
    (READ, topic_resource(FULL + "__spark_sink")),
    (WRITE, topic_resource(FULL + "__spark_sink")),
    (CREATE, topic_resource(FULL + "a")),
    (CREATE, topic_resource("persistent://other/default/__spark_sink")),
    (DESCRIBE, topic_resource("persistent://other/default/__spark_sink")),
    (CREATE, topic_resource("non-persistent://public/default/__spark_sink")),
    (READ, subscription_resource(FULL + "other", "pipeline-a")),
    (READ, group_resource("pipeline-b")),
    (READ, group_resource("pipeline-a-b")),
    (READ, group_resource("spark-sink-pipeline-a-b:6c0e")),
    (READ, group_resource("spark-sink-pipeline-a")),
    (READ, group_resource("a")),
    (Operation.DELETE, group_resource("pipeline-a")),
    (WRITE, transactional_id_resource("pipeline-a")),
    (WRITE, transactional_id_resource("pipeline-ab:1")),
    (WRITE, transactional_id_resource("x")),
    (Operation.ALTER, pipeline_resource("a")),
    (CREATE, CLUSTER),
    (Operation.ALTER, CLUSTER),
]


@pytest.mark.parametrize(("operation", "resource"), OWN)
def test_what_is_made_from_its_name_needs_no_rule(operation: Operation, resource: Resource) -> None:
    ACCESS.require(QUERY, operation, resource)
    assert ACCESS.permits(QUERY, operation, resource)


@pytest.mark.parametrize(("operation", "resource"), NOT_OWN)
def test_all_else_is_as_the_rules_say(operation: Operation, resource: Resource) -> None:
    assert not ACCESS.permits(QUERY, operation, resource)
    with pytest.raises(NotAuthorized, match="User:alice is not authorized"):
        ACCESS.require(QUERY, operation, resource)
    with pytest.raises(NotAuthorized):
        ACCESS.require_unnamed(QUERY, operation, resource)


@pytest.mark.parametrize(("operation", "resource"), OWN[:-1])
def test_the_owner_itself_and_other_pipelines_have_nothing_of_it(
    operation: Operation, resource: Resource
) -> None:
    own_topics = resource.type is ResourceType.TOPIC
    assert not ACCESS.permits(Caller(OWNER), operation, resource)
    assert ACCESS.permits(Caller(OWNER, pipeline="b"), operation, resource) is own_topics


def test_notes_are_about_one_topic_and_in_groups_of_its_own() -> None:
    group, notes = "spark-sink-pipeline-a:6c0e-1", FULL + "__spark_sink"
    assert ACCESS.takes_notes(QUERY, group, notes)
    assert not ACCESS.takes_notes(QUERY, group, "persistent://other/default/__spark_sink")
    assert not ACCESS.takes_notes(QUERY, "spark-sink-pipeline-b:6c0e-1", notes)
    assert not ACCESS.takes_notes(Caller(OWNER), group, notes)
