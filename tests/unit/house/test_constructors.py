"""A constructor takes at most eight parts: of more, some are one thing that has a name.

A value with that name (`base/times.py`, `broker/upkeep/topics_in_use.py`) takes their place.  Dataclasses are such
values, and do not count.
"""

import ast

import pytest

from .source_trees import SERVER, Trees, classes, sources

pytestmark = pytest.mark.xdist_group("sources")

PARTS_MAX = 8
_VALUES = "nearly all of them are values, which nothing else gets together"

# Those that take more, and why.
MORE = {
    "broker/broker.py Broker": "it composes the rooms, of what the server gives it",
    "broker/subscriptions/dispatch/model.py Unit": "there are millions of them, and a value inside would cost more",
    "broker/topics/topic.py Topic": _VALUES,
    "broker/upkeep/room.py UpkeepRoom": "it composes the room that looks at all others",
    "broker/usecases/publishing.py PublishCases": "so many rules look at a producer that opens",
    "broker/usecases/statistics.py StatisticsCases": "it reads all that counts",
    "protocols/kafka/session.py KafkaSession": _VALUES,
    "storage/local/journal.py Journal": _VALUES,
    "storage/local/reads.py Reads": _VALUES,
}


def long_constructors(trees: Trees) -> set[str]:
    """The classes of the server whose constructors take more than `PARTS_MAX` parts, as `module Class`."""
    return {
        f"{module} {made.name}"
        for module, tree in trees.items()
        if module.startswith(SERVER)
        for made in classes(tree)
        for part in made.body
        if isinstance(part, ast.FunctionDef) and part.name == "__init__"
        if len([*part.args.posonlyargs, *part.args.args, *part.args.kwonlyargs]) - 1 > PARTS_MAX
    }


def test_constructors_take_few_parts() -> None:
    assert long_constructors(sources()) == MORE.keys()


def test_a_constructor_with_many_parts_would_be_found() -> None:
    code = """
class Eight:
    def __init__(self, a, b, c, d, e, f, g, *, h): ...
class Nine:
    def __init__(self, a, b, c, d, e, f, g, *, h, i): ...
    def work(self, a, b, c, d, e, f, g, h, i, j): ...
"""
    assert long_constructors({"broker/part.py": ast.parse(code)}) == {"broker/part.py Nine"}
