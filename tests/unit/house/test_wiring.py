"""What an object calls is given to it when it is made: no other code hangs a hook on it later.

An object whose `x.on_done = ...` is assigned later works silently wrong until that has happened.  Looked for are,
outside of the class and the module that the attribute belongs to:

* an assignment to an attribute that is declared as a callable, or called `on_...`, and one more entry in a
  list of such;
* an assignment of a lambda, a `partial` or a method of one's own to any attribute of another object.

The modules that put the parts together assign nothing to a part at all: a collaborator that comes late is a hook, too.
What modules and classes keep for all is in `test_shared_state.py`.

Sets of callables are not hooks: a callable that joins one leaves it again.  A method that stores a callable which it
gets, alone or within a tuple, a `partial` or an object, is one, too, unless `STORED` has a reason.

What happens in a part, and concerns parts that are made later, is an event (`base/event.py`), which those hear in their
constructors.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest

from .source_trees import FUNCTIONS, SERVER, Trees, classes, sources

pytestmark = pytest.mark.xdist_group("sources")

GROWS_A_LIST = frozenset({"append", "insert", "extend"})
PUTS = frozenset({"add", "append", "appendleft", "insert", "put", "put_nowait", "setdefault"})

ASSEMBLIES = ("broker/broker.py", "broker/jobs/room.py", "broker/security/room.py", "broker/upkeep/room.py")
COMPOSING = (
    *ASSEMBLIES,
    "broker/usecases/composition.py",
    "server/standalone.py",
    "server/start_steps.py",
)

# Methods that store a callable after their object was made, and why nothing is wrong before that.
STORED = {
    "admin/routing.py Router.add": "the routes of a module, which are made when it is imported",
    "base/event.py AwaitedEvent.hear": "a part that is made later, and calls it in its constructor",
    "base/event.py Event.hear": "as of an awaited event",
    "base/memory_budget.py MemoryBudget.tell_when_room": "it is called once, or leaves",
    "base/metrics.py Metrics.gauge": "a metric is read when a client asks for all of them",
    "base/metrics.py Metrics.total": "as a gauge",
    "base/turn_end.py TurnEnd.soon": "it is called once",
    "base/turns.py Turns.wait": "it is called once",
    "broker/cluster/seat.py Seat.opened": "a hold of a bundle, which is a value",
    "broker/groups/group.py Group.park_join": "the reply to a request",
    "broker/groups/group.py Member.park_sync": "the reply to a request",
    "broker/jobs/functions.py Functions.is_ready": "an instance that runs, until it ends",
    "broker/log/durable_waits.py DurableWaits.when_durable": "it is called once",
    "broker/quotas/dispatch_limit.py DispatchLimit.wait": "it is called once, or leaves",
    "broker/topics/observers.py TopicsObservers.add": "a client that watches, until it leaves",
    "broker/upkeep/health.py Health.note": "a part that the server starts: HTTP, which shows it, starts last",
    "broker/upkeep/health.py Health.register": "as a note",
    "broker/upkeep/served_bundles.py ServedBundles.serve": "as a seat's",
    "broker/usecases/standing.py Standing.add_several": "a client's handle, until it is dropped",
    "functions/processing.py Processing._take": "a message that was taken, with the way to read it",
    "ledger/managed_ledger.py ManagedLedger._append_without_writer": "the end of an append",
    "ledger/managed_ledger.py ManagedLedger._on_done": "the end of an append",
    "ledger/shared_commits.py SharedCommits.submit": "the end of a commit",
    "metadata/sqlite.py SqliteMetadataStore.watch": "a watcher, until it leaves",
    "protocols/backpressure.py Backpressure.finish": "it is called once, at the end",
    "protocols/intake.py Intake.let_in": "the login has ended: the session's other half goes on",
    "protocols/kafka/handlers/produce.py _Pending.wait_first": "the work of a request",
    "protocols/kafka/registry.py Deferred.attach": "it is called once; a result that is there already calls it at once",
    "storage/local/ledger.py LocalLedger.append": "the end of an append",
    "storage/local/worker.py Worker.submit": "it is called once",
    "testing/transactions.py FakePartition.end_transaction": "it is called once",
}


# Methods that hear events though they are no constructors, and why.
HEARD_LATER = {
    "broker/usecases/logins.py LoginCases.hear_withdrawals": "doors exist after the broker, and call it when made",
}


def callable_names(trees: Iterable[ast.Module]) -> set[str]:
    """What a callable may be called in an annotation: `Callable`, aliases of one, protocols with `__call__`."""
    known = {"Callable"}
    before = 0
    while before < len(known):
        before = len(known)
        for statement in (statement for tree in trees for statement in tree.body):
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp() as value):
                    known |= {name} if is_callable(value, known) else set()
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Subscript() | ast.BinOp() as value):
                    known |= {name} if is_callable(value, known) else set()
                case ast.ClassDef(name=name, body=body) if any(
                    isinstance(part, FUNCTIONS) and part.name == "__call__" for part in body
                ):
                    known.add(name)
    return known


def is_callable(annotation: ast.expr | None, known: set[str]) -> bool:
    """Whether this is a callable, perhaps an optional one; also written as text."""
    match annotation:
        case ast.Name(id=name):
            return name in known
        case ast.Subscript(value=ast.Name(id="Final" | "Annotated"), slice=inner):
            return is_callable(inner, known)
        case ast.Subscript(value=outer):
            return is_callable(outer, known)
        case ast.BinOp(left=left, right=right):
            return is_callable(left, known) or is_callable(right, known)
        case ast.Constant(value=str(text)):
            with suppress(SyntaxError):  # any other text
                return is_callable(ast.parse(text, mode="eval").body, known)
    return False


def is_list_of_callables(annotation: ast.expr | None, known: set[str]) -> bool:
    match annotation:
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            return is_callable(inner, known)
    return False


def declared(trees: Trees) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The modules that have a class with this attribute: a callable, or a list of callables."""
    known = callable_names(trees.values())
    single: dict[str, set[str]] = defaultdict(set)
    lists: dict[str, set[str]] = defaultdict(set)

    def declare(module: str, name: str, annotation: ast.expr | None) -> None:
        if is_callable(annotation, known):
            single[name].add(module)
        elif is_list_of_callables(annotation, known):
            lists[name].add(module)

    for module, tree in trees.items():
        for made in classes(tree):
            for part in made.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    declare(module, part.target.id, part.annotation)
                if isinstance(part, FUNCTIONS):
                    arguments = [*part.args.args, *part.args.kwonlyargs]
                    annotations = {argument.arg: argument.annotation for argument in arguments}
                    for node in ast.walk(part):
                        match node:
                            case ast.AnnAssign(target=ast.Attribute(attr=name)):
                                declare(module, name, node.annotation)
                            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Name(id=given)):
                                declare(module, name, annotations.get(given))
    return single, lists


def methods_of(made: ast.ClassDef) -> set[str]:
    """Names of what can be called on it; a property is a value."""
    return {part.name for part in made.body if isinstance(part, FUNCTIONS) and not part.decorator_list}


def targets(statement: ast.stmt) -> Iterator[tuple[ast.Attribute, ast.expr | None]]:
    """The attributes of other objects that a statement assigns, each with what it is given."""
    match statement:
        case ast.Assign(targets=wholes, value=value):
            pass
        case ast.AnnAssign(target=whole, value=value) | ast.AugAssign(target=whole, value=value):
            wholes = [whole]
        case ast.Expr(
            value=ast.Call(
                func=ast.Name(id="setattr") | ast.Attribute(attr="__setattr__"),
                args=[owner, ast.Constant(value=str(name)), value],
            )
        ):
            wholes = [ast.Attribute(owner, name)]
        case _:
            return
    for target_or_tuple in wholes:
        single = target_or_tuple.elts if isinstance(target_or_tuple, ast.Tuple) else [target_or_tuple]
        given = value.elts if isinstance(value, ast.Tuple) and len(single) > 1 else [value] * len(single)
        for target, one in zip(single, given, strict=True):
            if isinstance(target, ast.Attribute) and not is_own(target):
                yield target, one


def is_own(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id in ("self", "cls")


def hooks(trees: Trees) -> list[str]:
    """Where one is assigned, as `module:line: code`."""
    single, lists = declared(trees)
    found: set[tuple[str, int, str]] = set()
    for module, tree in trees.items():
        for node, inside in with_class(tree, None):
            methods = methods_of(inside) if inside is not None else set()
            if isinstance(node, ast.stmt):
                for target, value in targets(node):
                    owners = single.get(target.attr, set()) | lists.get(target.attr, set())
                    is_foreign = bool(owners) and module not in owners
                    if is_foreign or target.attr.startswith("on_") or is_hook(value, methods):
                        found.add((module, node.lineno, ast.unparse(node)))
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Attribute() as grown, attr=verb)):
                    owners = lists.get(grown.attr, set())
                    if verb in GROWS_A_LIST and not is_own(grown) and owners and module not in owners:
                        found.add((module, node.lineno, ast.unparse(node)))
    return [f"{module}:{line}: {code}" for module, line, code in sorted(found)]


def is_hook(value: ast.expr | None, methods: set[str]) -> bool:
    match value:
        case ast.Lambda():
            return True
        case ast.Call(func=ast.Name(id="partial")):
            return True
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name in methods
    return False


def with_class(node: ast.AST, inside: ast.ClassDef | None) -> Iterator[tuple[ast.AST, ast.ClassDef | None]]:
    for child in ast.iter_child_nodes(node):
        yield child, inside
        yield from with_class(child, child if isinstance(child, ast.ClassDef) else inside)


def storing(trees: Trees) -> set[str]:
    """The methods, but for `__init__`, that store a callable which they get, as `module Class.method`."""
    known = callable_names(trees.values())
    return {
        f"{module} {made.name}.{method.name}"
        for module, tree in trees.items()
        for made in classes(tree)
        for method in made.body
        if isinstance(method, FUNCTIONS) and method.name != "__init__"
        if any(stores(node, callables_of(method, known)) for node in ast.walk(method))
    }


def callables_of(method: ast.FunctionDef | ast.AsyncFunctionDef, known: set[str]) -> set[str]:
    arguments = [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]
    return {argument.arg for argument in arguments if is_callable(argument.annotation, known)}


def stores(node: ast.AST, given: set[str]) -> bool:
    """Whether a statement keeps one of these names in an attribute, or in a collection that is one."""
    match node:
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(value=ast.Attribute())], value=kept):
            return keeps(kept, given)
        case ast.AnnAssign(target=ast.Attribute(), value=ast.expr() as kept):
            return keeps(kept, given)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(), attr=verb), args=arguments) if verb in PUTS:
            return any(keeps(one, given) for one in arguments)
    return False


def keeps(kept: ast.expr, given: set[str]) -> bool:
    """Whether this is one of the names, or holds one: a tuple, a lambda, or what a class or `partial` makes of it."""
    match kept:
        case ast.Name(id=name):
            return name in given
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return any(keeps(one, given) for one in parts)
        case ast.Lambda(body=body):
            return any(isinstance(node, ast.Name) and node.id in given for node in ast.walk(body))
        case ast.Call(func=ast.Name(id=made), args=arguments) if made == "partial" or is_of_class(made):
            return any(keeps(one, given) for one in arguments)
    return False


def is_of_class(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


def heard_later(trees: Trees) -> set[str]:
    """The functions of the server that hear an event and are no constructors, as `module Class.method`."""
    found = set()
    for module, tree in trees.items():
        for node, inside in with_class(tree, None) if module.startswith(SERVER) else ():
            if isinstance(node, FUNCTIONS) and node.name != "__init__":
                for call in ast.walk(node):
                    match call:
                        case ast.Call(func=ast.Attribute(attr="hear")):
                            found.add(f"{module} {inside.name + '.' if inside else ''}{node.name}")
    return found


def late_parts(trees: Trees) -> list[str]:
    """Where a module that puts parts together changes one that is made already."""
    return [
        f"{module}: {ast.unparse(node)}"
        for module in COMPOSING
        for node in ast.walk(trees[module])
        if isinstance(node, ast.stmt)
        for _ in targets(node)
    ]


def reached_early(tree: ast.AST) -> set[str]:
    """The attributes that lambdas in constructors use and that their constructor sets only after the lambda; and the
    methods of its own that a constructor uses, which may use anything.
    """
    found = set()
    for made in classes(tree):
        for method in made.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                set_at: dict[str, int] = {}
                for node in (node for step in reversed(method.body) for node in ast.walk(step)):
                    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node):
                        set_at[node.attr] = node.lineno
                methods = methods_of(made)
                found |= {
                    node.attr
                    for node in ast.walk(method)
                    if isinstance(node, ast.Attribute) and is_own(node) and node.attr in methods
                }
                found |= {
                    node.attr
                    for closure in ast.walk(method)
                    if isinstance(closure, ast.Lambda)
                    for node in ast.walk(closure.body)
                    if isinstance(node, ast.Attribute)
                    and is_own(node)
                    and set_at.get(node.attr, 0) > node.lineno
                }
    return found


def test_composing_constructors_give_only_what_is_there() -> None:
    found = {f"{module}: {name}" for module in ASSEMBLIES for name in reached_early(sources()[module])}
    assert found == set()


def test_each_room_with_an_assembly_is_looked_at() -> None:
    rooms = {module for module in sources() if module.startswith("broker/") and module.endswith("/room.py")}
    assert rooms <= set(ASSEMBLIES)


def test_a_part_that_is_reached_early_would_be_found() -> None:
    code = """
class Broker:
    def __init__(self):
        self.first = First(lambda: self.last.work, lambda: self.before)
        self.before = self.last = Last()
        self.then = Then(lambda: self.last.work)
        self.hearing = Hearing(self.heard)
    def heard(self): self.last.work()
"""
    assert reached_early(ast.parse(code)) == {"last", "before", "heard"}


def test_no_hook_is_assigned_after_construction() -> None:
    assert hooks(sources()) == []


def test_no_part_gets_another_one_after_construction() -> None:
    assert late_parts(sources()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "self.topics.schemas = self.schemas",
        "topics.schemas = schemas",
        "a.b, c = (d, e)",
        "setattr(topics, 'schemas', schemas)",
    ],
)
def test_a_late_part_would_be_found(statement: str) -> None:
    trees = dict.fromkeys(COMPOSING, ast.parse(""))
    trees["broker/broker.py"] = ast.parse(f"class Broker:\n    def start(self, topics, a): {statement}")
    assert late_parts(trees) == [f"broker/broker.py: {statement}"]


def test_no_method_hangs_a_hook_on_its_object() -> None:
    assert storing(sources()) == STORED.keys()


def test_events_are_heard_in_constructors() -> None:
    assert heard_later(sources()) == HEARD_LATER.keys()


def test_an_event_that_is_heard_later_would_be_found() -> None:
    code = """
class Late:
    def __init__(self, topics): topics.made.hear(self.work)
    def start(self): self.topics.made.hear(self.work)
def start(topics): topics.made.hear(print)
"""
    found = {"broker/part.py Late.start", "broker/part.py start"}
    assert heard_later({"broker/part.py": ast.parse(code)}) == found


OWNER = """
from collections.abc import Callable
Done = Callable[[], None]
class Owner:
    def __init__(self, told: Done | None = None) -> None:
        self.told = told
        self.wake: "Callable[[int], None] | None" = None
        self.steps: list[Done] = []
        self.name = ""
"""
CALLER = """
class Caller:
    def __init__(self, owner):
        {}
    def work(self): ...
    @property
    def value(self): ...
"""


def found_in(statement: str) -> list[str]:
    return hooks({"owner.py": ast.parse(OWNER), "caller.py": ast.parse(CALLER.format(statement))})


def test_a_hook_would_be_found() -> None:
    for statement in (
        "owner.told = other",
        "owner.wake = other",
        "owner.name, owner.told = ('', other)",
        "owner.steps.append(other)",
        "owner.steps += [other]",
        "owner.on_end = other",
        "owner.inner.on_end = None",
        "owner.name = lambda: 0",
        "owner.name = partial(other)",
        "owner.name = self.work",
        "setattr(owner, 'told', other)",
        "object.__setattr__(owner, 'on_end', other)",
    ):
        assert found_in(statement) == [f"caller.py:4: {statement}"]


def test_a_value_is_not_taken_for_a_hook() -> None:
    for statement in (
        "owner.name = self.value",
        "owner.name = owner.told()",
        "owner.names.append(self.work)",
        "self.told = self.work",
        "self.steps.append(self.work)",
        "setattr(self, 'told', self.work)",
        "setattr(owner, 'name', self.value)",
    ):
        assert found_in(statement) == []


SETTER = """
from collections.abc import Callable
class Owner:
    def __init__(self, told: Callable[[], None]) -> None:
        self.told = told
    def tell(self, told: Callable[[], None], name: str) -> None:
        {}
"""


def test_a_method_that_stores_a_callable_would_be_found() -> None:
    for statement in (
        "self.told = told",
        "self.told: Callable[[], None] = told",
        "self.inner.told = told",
        "self.steps.append(told)",
        "self.steps.add(told)",
        "self.steps[name] = told",
        "self.steps[name] = (name, told)",
        "self.steps[name] = Step(name, told)",
        "self.steps.append((name, told))",
        "self.steps.append(partial(told, name))",
        "self.steps.setdefault(name, told)",
        "self.told = lambda: told()",
    ):
        assert storing({"owner.py": ast.parse(SETTER.format(statement))}) == {"owner.py Owner.tell"}
    for statement in (
        "self.name = name",
        "self.names.append(name)",
        "self.names[name] = told()",
        "told()",
        "steps.append(told)",
    ):
        assert storing({"owner.py": ast.parse(SETTER.format(statement))}) == set()
