"""What users configure for topics and namespaces has an effect: code outside of the policies reads each value.

A value that nothing reads is shown as if it held.  A key of Kafka's without effect says so in its table
(`broker/policy/topic_keys.py`), and a policy without one is refused.
"""

import ast
import dataclasses

import pytest

from magnetar.broker.policy.model import Policies, TopicConfig

from .source_trees import Trees, nodes, sources

pytestmark = pytest.mark.xdist_group("sources")

ACTING = ("admin/", "broker/", "ledger/", "protocols/", "server/")
TABLES = "broker/policy/"


def unread(fields: set[str], trees: Trees) -> set[str]:
    read = {
        node.attr
        for module, node in nodes(trees, ACTING)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and not module.startswith(TABLES)
    }
    return fields - read


@pytest.mark.parametrize("values", [Policies, TopicConfig])
def test_each_value_is_read_where_it_acts(values: type) -> None:
    assert unread({field.name for field in dataclasses.fields(values)}, sources()) == set()


def test_a_value_that_nothing_reads_would_be_found() -> None:
    trees = {
        "broker/policy/topic_config.py": ast.parse("config.segment_ms"),
        "broker/part.py": ast.parse("config.retention_ms; config.segment_ms = 1"),
    }
    assert unread({"segment_ms", "retention_ms"}, trees) == {"segment_ms"}
