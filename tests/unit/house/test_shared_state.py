"""No module and no class of the server keeps a state of its own, which all servers of a process would share.

Nor does code find a part by the name of a module that a function sets: that would be a service locator.
"""

import ast

import pytest

from .source_trees import SERVER, Trees, classes, nodes, sources

pytestmark = pytest.mark.xdist_group("sources")

# What modules have one of for the whole process, by its class, and why no two servers disturb each other by it.
SHARED = {
    "CompiledModules": "compiled code, which is loaded once for a process",
    "Entry": "the mark of an entry that has left the cache, which nothing changes",
    "EntryPrefix": "a time as bytes: the next call for the same time uses them again",
    "FetchPace": "the pace of fetches without a rate, which nothing changes",
    "Held": "that a member holds nothing, which nothing changes",
    "Pieces": "how requests of an API are cut, which nothing changes",
    "Router": "the routes of a module, which are made when it is imported",
    "Struct": "the layout of bytes, which nothing changes",
    "Tasks": "no tasks, which nothing changes",
    "_Kept": "a thread's own buffers",
    "_Patience": "how much the process decodes in Python before it waits for compiled code",
    "_Unset": "the mark of a default that was not given",
    "local": "a thread's own pauses",
}


def set_globals(trees: Trees) -> list[str]:
    """Names of modules that functions set: through such a name, code finds what was not given to it."""
    return [
        f"{module}: {name}"
        for module, node in nodes(trees, SERVER)
        if isinstance(node, ast.Global)
        for name in node.names
    ]


def mutable_classes(trees: Trees) -> set[str]:
    """The classes of the server whose objects may change."""
    values = {"NamedTuple", "Enum", "IntEnum", "StrEnum", "IntFlag", "Protocol"}
    return {
        made.name
        for module, tree in trees.items()
        if module.startswith(SERVER)
        for made in classes(tree)
        if not any("frozen=True" in ast.unparse(one) for one in made.decorator_list)
        and not values & {ast.unparse(base).partition("[")[0] for base in made.bases}
    }


def module_state(trees: Trees) -> dict[str, str]:
    """The classes of the objects that modules have one of, each with a module that does."""
    collections = {
        "Counter",
        "OrderedDict",
        "WeakKeyDictionary",
        "WeakValueDictionary",
        "defaultdict",
        "deque",
        "local",
    }
    known = mutable_classes(trees) | collections
    found = {}
    for module, tree in trees.items():
        if module.startswith(SERVER):
            for statement in tree.body:
                match statement:
                    case ast.Assign(value=ast.Call(func=made)) | ast.AnnAssign(value=ast.Call(func=made)):
                        name = ast.unparse(made).rpartition(".")[2]
                        if name in known:
                            found[name] = module
    return found


def class_state(trees: Trees) -> list[str]:
    """Where code sets an attribute of a class of its module: all objects of the class share it."""
    found = []
    for module, tree in trees.items():
        own = {made.name for made in classes(tree)}
        for node in ast.walk(tree) if module.startswith(SERVER) else ():
            match node:
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name))]) if name in own:
                    found.append(f"{module}: {ast.unparse(node)}")
                case ast.AugAssign(target=ast.Attribute(value=ast.Name(id=name))) if name in own:
                    found.append(f"{module}: {ast.unparse(node)}")
    return found


def test_no_module_or_class_keeps_a_state_that_servers_share() -> None:
    found = module_state(sources())
    assert {name: module for name, module in found.items() if name not in SHARED} == {}
    assert SHARED.keys() <= found.keys(), "no module has one of these any more"
    assert class_state(sources()) == []


def test_a_state_that_servers_share_would_be_found() -> None:
    trees = {
        "admin/part.py": ast.parse(
            "class Count: ...\nclass Row(NamedTuple): ...\n_count: Final = Count()\nROW = Row()\n_kept = Counter()\n"
            "def add(self): Count.total += 1\ndef put(self): self.total = 1"
        )
    }
    assert module_state(trees) == {"Count": "admin/part.py", "Counter": "admin/part.py"}
    assert class_state(trees) == ["admin/part.py: Count.total += 1"]


def test_only_the_source_of_randomness_is_found_by_a_modules_name() -> None:
    assert set_globals(sources()) == ["base/randomness.py: _source"]


def test_a_global_would_be_found() -> None:
    tree = ast.parse("broker = None\ndef start(made):\n    global broker\n    broker = made")
    assert set_globals({"broker/part.py": tree}) == ["broker/part.py: broker"]
