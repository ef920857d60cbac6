"""The same claims on Apache Kafka: opt-in, MAGNETAR_KAFKA=host:port names a cluster that may be written to.

Its brokers have to make topics by themselves, with two partitions (`num.partitions=2`).
"""

import os
from types import SimpleNamespace

import pytest

from tests.integration.pipelines.test_exactly_once import (
    cluster,
    test_a_failed_batch_is_aborted_and_a_decided_one_is_not,
    test_a_second_query_with_the_same_checkpoint_is_found_out,
    test_a_time_out_that_the_broker_does_not_allow,
    test_an_attempt_with_fewer_tasks_leaves_nothing_open,
    test_dying_at_any_request,
    test_nothing_is_visible_before_the_commit_and_all_of_it_after,
    test_transactions_that_lapse_after_the_decision_are_never_lost_in_silence,
)

__all__ = [
    "cluster",
    "test_a_failed_batch_is_aborted_and_a_decided_one_is_not",
    "test_a_second_query_with_the_same_checkpoint_is_found_out",
    "test_a_time_out_that_the_broker_does_not_allow",
    "test_an_attempt_with_fewer_tasks_leaves_nothing_open",
    "test_dying_at_any_request",
    "test_nothing_is_visible_before_the_commit_and_all_of_it_after",
    "test_transactions_that_lapse_after_the_decision_are_never_lost_in_silence",
]

KAFKA = os.environ.get("MAGNETAR_KAFKA")
pytestmark = pytest.mark.skipif(KAFKA is None, reason="MAGNETAR_KAFKA names no cluster")


@pytest.fixture(scope="module")
def server() -> SimpleNamespace:
    return SimpleNamespace(bootstrap=KAFKA)
