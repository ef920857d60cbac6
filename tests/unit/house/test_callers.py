"""A use case takes the caller, and asks whether it may; or it takes a handle, which a use case gave that has asked.

A use case that takes neither would do its work for whatever door comes to it: it is in `NEITHER`, with a reason.
"""

import ast
from collections.abc import Iterator

import pytest

from .source_trees import FUNCTIONS, Trees, sources

pytestmark = pytest.mark.xdist_group("sources")

USE_CASES = "broker/usecases/"
# Handles that are made elsewhere.
HANDLES = frozenset({"SubscribedConsumer"})
_LOGINS = "there is no caller before the login"
_WORKER = "the worker is known by its token, and is no caller"
_LEASE = "the id of a lease is random, and only who has taken the lease knows it"
_SERVER = "what the server is, for every client"
_CONFIGURED = "what the server is configured for, for every client"

NEITHER = {
    "GroupCases.rights_changes": "a number that only grows",
    "HistoryCases.end_lease": _LEASE,
    "HistoryCases.renew_lease": _LEASE,
    "HistoryCases.store_id": _SERVER,
    "LoginCases.are_required": _LOGINS,
    "LoginCases.failed": _LOGINS,
    "LoginCases.give_place": "the place is that of a connection",
    "LoginCases.has_anonymous": _LOGINS,
    "LoginCases.hear_withdrawals": "a door hears of them for all its connections",
    "LoginCases.log_in": _LOGINS,
    "LoginCases.methods": _LOGINS,
    "LoginCases.take_place": "the place is that of a connection",
    "MetricsCases.declare": "declares metrics, which are read by a use case that asks",
    "NodeCases.all": _SERVER,
    "NodeCases.controller_id": _SERVER,
    "PipelineWorkerCases.end": _WORKER,
    "PipelineWorkerCases.kafka_endpoints": _WORKER,
    "PipelineWorkerCases.orders": _WORKER,
    "PipelineWorkerCases.report": _WORKER,
    "PipelineWorkerCases.table_roots": _WORKER,
    "PipelineWorkerCases.take_lease": _WORKER,
    "PipelineWorkerCases.tokens": _WORKER,
    "PipelineWorkerCases.version": _WORKER,
    "PublishCases.look_into": "looks into bytes that the client has sent",
    "PulsarTopicCases.unwatch_partitions": "ends what its caller was allowed to begin",
    "PulsarTransactionCases.connect": _CONFIGURED,
    "SaslCases.at": _LOGINS,
    "SaslCases.unasked": _LOGINS,
    "ShareOffsetCases.is_one": "only decides which error a caller gets that may describe the group",
    "TelemetryCases.is_asked_for": _CONFIGURED,
    "TelemetryCases.push": "the client's own metrics",
    "TelemetryCases.subscribe": "the client's own metrics",
    "TopicCases.check_deletion": _CONFIGURED,
    "TopicCases.default_settings": _CONFIGURED,
    "TopicCases.exists": "only decides which error a caller gets that may create the topic",
    "TopicCases.partition_count": _CONFIGURED,
    "TransactionCases.add_partitions": "its partitions are those that `to_add_partitions` has found",
    "TransactionCases.commit_offsets": "its topics are those that `to_commit_in_transaction` has found",
    "TransactionCases.shown_name": "a name, in another form",
}


def use_cases(trees: Trees) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for made in (one for tree in trees.values() for one in tree.body if isinstance(one, ast.ClassDef)):
        for method in made.body if made.name.endswith("Cases") else ():
            if isinstance(method, FUNCTIONS) and not method.name.startswith("_"):
                yield made, method


def without_caller(trees: Trees) -> set[str]:
    """The use cases that take neither a caller nor an object of a class that the room of the use cases has."""
    room = {module: tree for module, tree in trees.items() if module.startswith(USE_CASES)}
    handles = HANDLES | {
        one.name
        for tree in room.values()
        for one in ast.walk(tree)
        if isinstance(one, ast.ClassDef) and not one.name.endswith("Cases")
    }
    found = set()
    for made, method in use_cases(room):
        arguments = [*method.args.args, *method.args.kwonlyargs]
        named = {
            node.id
            for one in arguments
            if one.annotation is not None
            for node in ast.walk(one.annotation)
            if isinstance(node, ast.Name)
        }
        if "caller" not in {one.arg for one in arguments} and not named & handles:
            found.add(f"{made.name}.{method.name}")
    return found


def unasked(trees: Trees) -> set[str]:
    """The use cases that take a caller and do nothing with it."""
    return {
        f"{made.name}.{method.name}"
        for made, method in use_cases(
            {name: tree for name, tree in trees.items() if name.startswith(USE_CASES)}
        )
        if "caller" in {one.arg for one in method.args.args}
        if not any(isinstance(node, ast.Name) and node.id == "caller" for node in ast.walk(method))
    }


def test_a_use_case_takes_its_caller_or_a_handle() -> None:
    assert without_caller(sources()) == NEITHER.keys()


def test_a_caller_that_is_taken_is_asked_about() -> None:
    assert unasked(sources()) == set()


def test_a_use_case_without_either_would_be_found() -> None:
    trees = {
        "broker/usecases/part.py": ast.parse(
            "class Handle: ...\n"
            "class PartCases:\n"
            "    def asks(self, caller: Caller): self.access.require(caller)\n"
            "    def takes(self, handle: Handle): ...\n"
            "    async def works(self, name: str): ...\n"
            "    def ignores(self, caller: Caller): ...\n"
            "    def _inside(self): ...\n"
        )
    }
    assert without_caller(trees) == {"PartCases.works"}
    assert unasked(trees) == {"PartCases.ignores"}
