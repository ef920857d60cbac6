"""A door translates: it holds no rule of a verb, reaches into no object, and writes every name that clients read.

What a door may import is in the contracts of `pyproject.toml`, and what it gets is in `test_handed_out.py`.  With what
it gets it could still go around a use case, which these tests look for:

* an attribute that begins with `_`, of an object whose class is in another module;
* a policy that a protocol reads: use cases apply policies, for all doors (REST shows them, and so may read them);
* an import by a text, which no contract sees;
* names in JSON that Python's reflection makes of names in the code, so that a rename would break clients.
"""

import ast
import dataclasses
from collections.abc import Iterator

import pytest

from magnetar.broker.policy.model import Policies

from .source_trees import FUNCTIONS, Trees, classes, nodes, sources

pytestmark = pytest.mark.xdist_group("sources")

DOORS = ("admin/", "protocols/")
PROTOCOLS = ("protocols/",)
# What clients read is made in the doors, or by a client and the programs that show what it got.
WRITERS = (*DOORS, "cli/", "client/", "broker/usecases/")
POLICIES = frozenset(field.name for field in dataclasses.fields(Policies))
BY_TEXT = {
    "admin/serving.py": "the admin API itself, beside the start of the server, because it takes long",
    "broker/security/sealing.py": "a library that only servers with secrets need, of which it loads no module of ours",
    "functions/code.py": "the code of a user",
    "links/kafka/mask.py": "the code of a user",
    "pipelines/kinds/registry.py": "kinds, also of other packages: a contract keeps them from each other",
    "pipelines/spark/daemon.py": "what Python workers import anyway, before they are forked",
    "pipelines/spark/setup.py": "no module: Python looks again for those that pip has installed",
    "protocols/kafka/login.py": "the module of an API's own codec, for an empty answer of that API",
    "replicators/registry.py": "providers, also of other packages: a contract keeps the port from them",
    "testing/kafka.py": "the module of an API's own codec, as a test names it",
    "wire/compiling.py": "the compiled form of modules of its own package",
}
OF_TUPLES = frozenset({"_replace"})  # public in spite of its name: a named tuple's fields have the others
REFLECTING_CALLS = frozenset({"asdict", "astuple", "fields", "vars"})
REFLECTING_ATTRIBUTES = frozenset({"__dataclass_fields__", "__dict__", "_asdict", "_fields"})


def attributes(trees: Trees, places: tuple[str, ...]) -> Iterator[tuple[str, ast.Attribute]]:
    return ((module, node) for module, node in nodes(trees, places) if isinstance(node, ast.Attribute))


def own_names(tree: ast.Module) -> set[str]:
    """The attributes and methods of the classes in a module."""
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    for made in classes(tree):
        own |= {part.name for part in made.body if isinstance(part, FUNCTIONS)}
    return own


def private(trees: Trees) -> list[str]:
    """Where a door uses what is private in another module."""
    return [
        f"{module}: {ast.unparse(node)}"
        for module, node in attributes(trees, DOORS)
        if node.attr.startswith("_") and not node.attr.startswith("__") and node.attr not in OF_TUPLES
        if node.attr not in own_names(trees[module])
    ]


def policies_read(trees: Trees) -> list[str]:
    """Where a protocol reads what could be a policy."""
    return [
        f"{module}: {ast.unparse(node)}"
        for module, node in attributes(trees, PROTOCOLS)
        if node.attr in POLICIES
    ]


def imports_by_text(trees: Trees) -> list[str]:
    """Where a module is imported by a text."""
    return [f"{module}: {ast.unparse(node)}" for module, node in nodes(trees) if is_import_by_text(node)]


def is_import_by_text(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name in ("__import__", "import_module", "importlib")
    return False


def is_reflection(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in REFLECTING_CALLS:
            return True
        case ast.Attribute(attr="__name__" | "__qualname__", value=ast.Call(func=ast.Name(id="type"))):
            return True
        case ast.Attribute(attr="__name__" | "__qualname__", value=ast.Attribute(attr="__class__")):
            return True
        case ast.Attribute(attr=name):
            return name in REFLECTING_ATTRIBUTES
    return False


def reflections(trees: Trees) -> list[str]:
    """Where names of the code become data."""
    return [f"{module}: {ast.unparse(node)}" for module, node in nodes(trees, WRITERS) if is_reflection(node)]


def test_no_door_uses_what_is_private_elsewhere() -> None:
    assert private(sources()) == []


def test_no_protocol_reads_a_policy() -> None:
    assert policies_read(sources()) == []


def test_the_contracts_see_every_import() -> None:
    assert {found.partition(": ")[0] for found in imports_by_text(sources())} == BY_TEXT.keys()


def test_no_name_that_clients_read_comes_from_reflection() -> None:
    assert reflections(sources()) == []


def found_in(module: str, code: str) -> tuple[list[str], list[str], list[str]]:
    trees = {module: ast.parse(code)}
    return private(trees), policies_read(trees), reflections(trees)


def test_what_is_private_elsewhere_would_be_found() -> None:
    code = "context.cases.topics._topics.delete(name)"
    found, *_ = found_in("protocols/kafka/handlers/delete_topics.py", code)
    assert found == ["protocols/kafka/handlers/delete_topics.py: context.cases.topics._topics"]


@pytest.mark.parametrize(
    "code",
    [
        "row._replace(name='t')",
        "super().__init__()",
        "class Own:\n    def __init__(self, other):\n        self._x = other._x",
        "class Own:\n    def _do(self): ...\n    def do(self, other): other._do()",
    ],
)
def test_what_is_a_modules_own_is_not_found(code: str) -> None:
    assert found_in("admin/part.py", code) == ([], [], [])


def test_a_policy_in_a_protocol_would_be_found() -> None:
    code = "if len(consumers) >= policies.consumers_max: refuse()"
    assert found_in("protocols/pulsar/handlers/subscribe.py", code)[1] == [
        "protocols/pulsar/handlers/subscribe.py: policies.consumers_max"
    ]
    assert found_in("admin/stats.py", code)[1] == []


@pytest.mark.parametrize(
    "code",
    [
        "import importlib",
        "from importlib import import_module",
        "importlib.import_module('magnetar.broker.topics.registry')",
        "__import__('magnetar.broker.topics.registry')",
    ],
)
def test_an_import_by_text_would_be_found(code: str) -> None:
    assert imports_by_text({"protocols/kafka/handlers/part.py": ast.parse(code)}) != []


@pytest.mark.parametrize(
    "code",
    [
        "asdict(pipeline)",
        "dataclasses.asdict(pipeline)",
        "vars(pipeline)",
        "pipeline.__dict__",
        "row._asdict()",
        "type(error).__name__",
        "error.__class__.__name__",
        "{one.name: 0 for one in dataclasses.fields(pipeline)}",
    ],
)
@pytest.mark.parametrize("module", ["admin/part.py", "broker/usecases/part.py", "cli/part.py"])
def test_a_reflection_would_be_found(module: str, code: str) -> None:
    assert found_in(module, code)[2] != []


@pytest.mark.parametrize(
    "code", ["{'name': pipeline.name}", "logging.getLogger(__name__)", "codec.__name__", "error.code"]
)
def test_a_written_name_is_not_found(code: str) -> None:
    assert found_in("admin/part.py", code)[2] == []
