"""A partition is used by what it offers: no module asks of which kind it is, or whether it has an attribute."""

import ast

from .source_trees import Trees, sources

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


def questions(trees: Trees) -> list[str]:
    """Where the kind of a partition is asked for, and where the broker looks up an attribute by its name."""
    found = []
    asked_for = kinds(trees)
    for module, tree in trees.items():
        if not module.startswith(("broker/", "protocols/", "admin/", "server/")):
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, wanted]):
                    is_question = bool(
                        {name.id for name in ast.walk(wanted) if isinstance(name, ast.Name)} & asked_for
                    )
                case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[ast.Name(id=name)]):
                    is_question = name in asked_for
                case ast.MatchClass(cls=ast.Name(id=name)):
                    is_question = name in asked_for
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
        "type(x) is Odd",
        "hasattr(x, 'subscriptions')",
        "getattr(x, 'subscriptions', None)",
    ):
        trees = {
            "broker/kinds.py": ast.parse(classes),
            "broker/user.py": ast.parse(f"def use(x): return {question}"),
        }
        assert questions(trees) == [f"broker/user.py: {question}"]
    matched = ast.parse("match x:\n    case Odd(): ...")
    assert questions({"broker/kinds.py": ast.parse(classes), "broker/user.py": matched}) == [
        "broker/user.py: Odd()"
    ]


def test_what_is_no_question_is_not_found() -> None:
    classes = "class Partition: ...\n"
    for code in ("isinstance(x, int)", "type(x) is str", "getattr(x, name)", "Partition(x)"):
        trees = {"broker/kinds.py": ast.parse(classes), "broker/user.py": ast.parse(code)}
        assert questions(trees) == []
