"""Which sources compiled code is made of, and who may import it (`wire/compiled_bytes.py` has the rules)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import magnetar
from magnetar.wire.columns import engine as columns
from magnetar.wire.compaction import latest
from magnetar.wire.compiling import CompiledModules
from magnetar.wire.convert import engine as convert
from magnetar.wire.kafka import record_scan
from tests.unit.house.source_trees import sources

pytestmark = pytest.mark.xdist_group("sources")

ROOT = Path(magnetar.__file__).parent
ALL = [columns._compiled, convert._compiled, latest._compiled, record_scan._compiled]


def imported(tree: ast.Module) -> Iterator[str]:
    """Our modules from which this one imports names, as paths inside of the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("magnetar."):
            yield str(node.module).removeprefix("magnetar.").replace(".", "/") + ".py"


def is_compiled(name: str) -> bool:
    return Path(name).name.startswith("compiled_")


def made_of(names: tuple[str, ...]) -> set[str]:
    """The compiled modules `names`, those that they import, and plain ones from which these have constants."""
    found: set[str] = set()
    left = [name.removeprefix("magnetar.").replace(".", "/") + ".py" for name in names]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += imported(sources()[name]) if is_compiled(name) else ()
    return found


@pytest.mark.parametrize("modules", ALL, ids=lambda modules: modules._home.parent.name)
def test_all_sources_of_compiled_code_name_its_folder_and_no_others(modules: CompiledModules) -> None:
    named = {str((modules._home.parent / name).resolve().relative_to(ROOT)) for name in modules._sources}
    assert named == made_of(modules._names)


def test_only_compiled_modules_import_compiled_ones() -> None:
    wrong = {
        name: [other for other in imported(tree) if is_compiled(other)]
        for name, tree in sources().items()
        if not is_compiled(name)
    }
    assert {name: others for name, others in wrong.items() if others} == {}
