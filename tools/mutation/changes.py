"""The mutants of a module: each is its text with one change.

A statement left out, a comparison or a logical operator turned around, a number off by one.  What only says something
is left as it is: log lines, the texts of errors, assertions (they are false in no run that is right).

A mutant's name is its function and its change, and does not move when lines above it do.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

SNIPPET_CHARS: Final = 70

_SWAPPED: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
_LOGGERS: Final = frozenset({"log", "logger"})


class Mutant(NamedTuple):
    name: str
    """`Class.function: before  ->  after`, and ` #2` for the second one that reads so."""
    line: int
    lines: tuple[int, int]
    """The first and the last line of the statement, or of its head: a test that runs it runs one of these."""
    source: str


def mutants(text: str) -> list[Mutant]:
    seen: Counter[str] = Counter()
    found = []
    for number, change in _sites(text):
        tree = ast.parse(text)
        places = _Places(tree)
        node = places.nodes[number]
        shown = places.snippet(node)
        before = _first_line(shown)
        after = change(node, places.parents[node]) or _first_line(shown)
        name = f"{places.function(node)}: {before}  ->  {after}"
        seen[name] += 1
        if seen[name] > 1:
            name += f" #{seen[name]}"
        lines = _lines(places.statement(node))
        source = ast.unparse(ast.fix_missing_locations(tree))
        found.append(Mutant(name, getattr(node, "lineno", lines[0]), lines, source))
    return found


class _Places:
    """Who stands in what, in one tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = sorted(
            ast.walk(tree), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        )
        self.parents: dict[ast.AST, ast.AST] = {
            child: parent for parent in self.nodes for child in ast.iter_child_nodes(parent)
        }

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The node, what it stands in, and so on."""
        here: ast.AST | None = node
        while here is not None:
            yield here
            here = self.parents.get(here)

    def statement(self, node: ast.AST) -> ast.stmt:
        return next(place for place in self.around(node) if isinstance(place, ast.stmt))

    def snippet(self, node: ast.AST) -> ast.AST:
        """As much around the node as makes a short line."""
        best = node
        for place in self.around(node):
            if hasattr(place, "body") and isinstance(place, ast.stmt):
                break
            if isinstance(place, ast.expr | ast.stmt):
                if len(ast.unparse(place)) > SNIPPET_CHARS:
                    break
                best = place
            if isinstance(place, ast.stmt):
                break
        return best

    def function(self, node: ast.AST) -> str:
        names = [
            place.name
            for place in self.around(node)
            if isinstance(place, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        return ".".join(reversed(names)) or "<module>"


def _sites(text: str) -> list[tuple[int, "_Change"]]:
    tree = ast.parse(text)
    places = _Places(tree)
    silent = {node for top in places.nodes for only_says in _only_says(top) for node in ast.walk(only_says)}
    return [
        (number, change)
        for number, node in enumerate(places.nodes)
        if node not in silent
        for change in _changes(node)
    ]


def _only_says(node: ast.AST) -> Iterator[ast.AST]:
    """What of this node has no effect but words."""
    if isinstance(node, ast.Assert):
        yield node
    elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        yield from node.exc.args
    elif isinstance(node, ast.Expr) and ast.unparse(node).split(".")[0] in _LOGGERS:
        yield node


def _changes(node: ast.AST) -> Iterator["_Change"]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            if type(operator) in _SWAPPED:
                yield _Swap(place)
    elif isinstance(node, ast.BoolOp) or (isinstance(node, ast.BinOp) and type(node.op) in _SWAPPED):
        yield _Swap(-1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _Unnot()
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield _OffByOne()
    elif _may_be_left_out(node):
        yield _LeaveOut()


def _may_be_left_out(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.AugAssign | ast.Delete | ast.Raise)


class _Change(Protocol):
    """Changes `node`, which stands in `parent`, in place; what to say of it if the changed line does not."""

    def __call__(self, node: ast.AST, parent: ast.AST) -> str: ...


class _Swap(_Change):
    def __init__(self, place: int) -> None:
        self._place = place

    def __call__(self, node: ast.AST, parent: ast.AST) -> str:
        if isinstance(node, ast.Compare):
            old: ast.AST = node.ops[self._place]
            node.ops[self._place] = _SWAPPED[type(old)]()  # type: ignore[call-overload]
        elif isinstance(node, ast.BoolOp | ast.BinOp):
            node.op = _SWAPPED[type(node.op)]()  # type: ignore[assignment]
        return ""


class _Unnot(_Change):
    def __call__(self, node: ast.AST, parent: ast.AST) -> str:
        assert isinstance(node, ast.UnaryOp)
        node.op = ast.UAdd()  # of a bool: the same truth as without `not`
        node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        return ""


class _OffByOne(_Change):
    def __call__(self, node: ast.AST, parent: ast.AST) -> str:
        assert isinstance(node, ast.Constant)
        assert isinstance(node.value, int)
        node.value += 1
        return ""


class _LeaveOut(_Change):
    def __call__(self, node: ast.AST, parent: ast.AST) -> str:
        for name in ("body", "orelse", "finalbody"):
            body = getattr(parent, name, None)
            if isinstance(body, list) and node in body:
                body[body.index(node)] = ast.Pass()
        return "left out"


def _first_line(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node)).split("\n")[0][:110]


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """Of a statement with a body only those before it."""
    first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if not body:
        return first, statement.end_lineno or first
    inner = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else body[0].lineno
    return first, max(first, inner - 1)
