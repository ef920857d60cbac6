"""No module imports another one that needs it, also for its types: what `layers` cannot see inside of a package."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from re import fullmatch

import grimp
import pytest

import magnetar


@cache
def imports() -> dict[str, set[str]]:
    graph = grimp.build_graph("magnetar", exclude_type_checking_imports=False, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_there_is_no_circle_of_imports() -> None:
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        raise AssertionError("a circle: " + " imports ".join(reversed(error.args[1]))) from None


def test_a_circle_would_be_found() -> None:
    graph = {**imports()}
    [above] = [module for module in ("magnetar.broker.topics.topic",) if graph[module]]
    below = sorted(graph[above])[0]
    graph[below] = graph[below] | {above}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return
    raise AssertionError("the circle was not found")


# What a value may be made of besides other values: names of the store's things, an entry of the log, the names of what
# a replicator has, and whose rights decide what a member of a group gets.
_NAMED_BELOW = {
    "magnetar.storage.store",
    "magnetar.ledger.entry",
    "magnetar.replicators.naming",
    "magnetar.broker.groups.viewer",
    "magnetar.broker.cluster.bundles",
}


def test_values_and_errors_of_the_broker_know_no_service() -> None:
    def is_value(module: str) -> bool:
        named = r"magnetar\.broker(\.\w+)?\.(errors|model)|magnetar\.broker\..*\.errors"
        return (
            module.startswith(("magnetar.base.", "magnetar.wire."))
            or module in _NAMED_BELOW
            or fullmatch(named, module) is not None
        )

    values = [module for module in imports() if module.startswith("magnetar.broker.") and is_value(module)]
    assert len(values) > 20
    services = {module: sorted(filter(lambda one: not is_value(one), imports()[module])) for module in values}
    assert {module: known for module, known in services.items() if known} == {}


def guarded(source: str) -> set[str]:
    """The packages that a module imports under TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import):
                    found |= {alias.name.split(".")[0] for alias in inner.names}
                elif isinstance(inner, ast.ImportFrom):
                    found.add("magnetar" if inner.level else (inner.module or "").split(".")[0])
    return found


# They take tens of milliseconds or more to import, and some are missing without an extra.
HEAVY = {"deltalake", "pyarrow", "pyspark", "rich", "urllib3"}


OUTSIDE_OF_THE_SERVER = {
    "cli",
    "client",
    "pipelines",
}  # they do without a heavy library for as long as they can
FOLDER = Path(magnetar.__file__).parent


@pytest.mark.parametrize("package", sorted(path.parent.name for path in FOLDER.glob("*/__init__.py")))
def test_only_heavy_libraries_are_imported_for_types_alone(package: str) -> None:
    allowed = HEAVY if package in OUTSIDE_OF_THE_SERVER else set()
    others = {
        str(path.relative_to(FOLDER)): names
        for path in (FOLDER / package).rglob("*.py")
        if (names := guarded(path.read_text(encoding="utf-8")) - allowed)
    }
    assert others == {}


@pytest.mark.parametrize(
    "line",
    ["from magnetar.client.rest import RestClient", "import magnetar.client.rest", "from . import rest"],
)
def test_a_guarded_import_of_ours_would_be_found(line: str) -> None:
    assert guarded(f"if typing.TYPE_CHECKING:\n    import pyspark\n    {line}\n") == {"pyspark", "magnetar"}
