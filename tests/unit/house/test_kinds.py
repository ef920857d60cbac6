"""A partition is used by what it offers: no module asks of which kind it is, or whether it has an attribute."""

import ast

import pytest

from .source_trees import Trees, sources

pytestmark = pytest.mark.xdist_group("sources")

BASE = "Partition"  # of the broker's log


def kinds(trees: Trees) -> set[str]:
    """The broker's `Partition` and what derives from it, at any distance."""
    bases = {
        node.name: {ast.unparse(base) for base in node.bases}
        for module, tree in trees.items()
        if module.startswith("broker/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {BASE} & bases.keys()
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def names_in(wanted: ast.AST) -> set[str]:
    """The last part of each name: `partition.Partition` is `Partition`."""
    found = {node.id for node in ast.walk(wanted) if isinstance(node, ast.Name)}
    return found | {node.attr for node in ast.walk(wanted) if isinstance(node, ast.Attribute)}


def aliases(tree: ast.Module, of: set[str]) -> set[str]:
    """What a module calls these, where it imports them by another name."""
    imported = (alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names)
    return {alias.asname for alias in imported if alias.name in of and alias.asname is not None}


def questions(trees: Trees) -> list[str]:
    """Where the kind of a partition is asked for, and where the broker looks up an attribute by its name."""
    found = []
    all_kinds = kinds(trees)
    for module, tree in trees.items():
        if not module.startswith(("broker/", "protocols/", "admin/", "server/")):
            continue
        asked_for = all_kinds | aliases(tree, all_kinds)
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, wanted]):
                    is_question = bool(names_in(wanted) & asked_for)
                case ast.Compare(
                    left=ast.Call(func=ast.Name(id="type")) | ast.Attribute(attr="__class__"),
                    comparators=[wanted],
                ):
                    is_question = bool(names_in(wanted) & asked_for)
                case ast.MatchClass(cls=wanted):
                    is_question = bool(names_in(wanted) & asked_for)
                case ast.Call(func=ast.Name(id="hasattr")):
                    is_question = True
                case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(), *_]):
                    is_question = module.startswith("broker/")
                case _:
                    is_question = False
            if is_question:
                found.append(f"{module}: {ast.unparse(node)}")
    return found


def test_no_module_asks_for_the_kind_of_a_partition() -> None:
    assert questions(sources()) == []


def test_there_are_kinds_of_partitions() -> None:
    assert kinds(sources()) == {"Partition", "NonPersistentPartition"}


def test_a_question_would_be_found() -> None:
    classes = "class Partition: ...\nclass Odd(Partition): ...\nclass Odder(Odd): ...\n"
    for question in (
        "isinstance(x, Odder)",
        "isinstance(x, Odd | int)",
        "issubclass(x, (int, Partition))",
        "isinstance(x, kinds.Odd)",
        "type(x) is Odd",
        "type(x) in (Odd, Odder)",
        "x.__class__ is kinds.Odd",
        "hasattr(x, 'subscriptions')",
        "getattr(x, 'subscriptions', None)",
    ):
        trees = {
            "broker/kinds.py": ast.parse(classes),
            "broker/user.py": ast.parse(f"def use(x): return {question}"),
        }
        assert questions(trees) == [f"broker/user.py: {question}"]
    renamed = ast.parse("from broker.kinds import Odd as Strange\nisinstance(x, Strange)")
    assert questions({"broker/kinds.py": ast.parse(classes), "broker/user.py": renamed}) == [
        "broker/user.py: isinstance(x, Strange)"
    ]
    matched = ast.parse("match x:\n    case Odd(): ...")
    assert questions({"broker/kinds.py": ast.parse(classes), "broker/user.py": matched}) == [
        "broker/user.py: Odd()"
    ]


def test_what_is_no_question_is_not_found() -> None:
    classes = "class Partition: ...\n"
    for code in ("isinstance(x, int)", "type(x) is str", "getattr(x, name)", "Partition(x)"):
        trees = {"broker/kinds.py": ast.parse(classes), "broker/user.py": ast.parse(code)}
        assert questions(trees) == []
