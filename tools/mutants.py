"""Change the modules that keep data in one place at a time, and see whether their tests notice.

    python tools/mutants.py                     what there is to be changed, by module
    python tools/mutants.py catalogue chain     every mutant of these; --sample 40 --seed 1 for some of them

Each mutant is a copy of `src` with one change: a statement left out, a comparison or a logical operator turned around,
a number off by one.  It is *killed* when the module's own tests fail (or hang).  Survivors are printed with their line;
a survivor is a missing test, or a change that cannot be told from the original, which `EQUIVALENT` then names with the
reason.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

REPOSITORY: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = REPOSITORY / "src"
TIMEOUT_S: Final = 300.0

STORE: Final = ("tests/unit/storage", "tests/crash/storage")
LEDGER: Final = ("tests/unit/ledger",)
MODULES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "journal": ("storage/local/journal.py", STORE),
    "writebehind": ("storage/local/writebehind.py", STORE),
    "recovery": ("storage/local/recovery.py", STORE),
    "replay": ("storage/local/replay.py", STORE),
    "catalogue": ("storage/local/catalogue.py", STORE),
    "ring": ("storage/local/ring.py", STORE),
    "sqlite": ("metadata/sqlite.py", ("tests/unit/metadata",)),
    "sqlite_file": ("metadata/sqlite_file.py", ("tests/unit/metadata",)),
    "commit_mark": ("metadata/commit_mark.py", ("tests/unit/metadata",)),
    "managed_ledger": ("ledger/managed_ledger.py", LEDGER),
    "chain": ("ledger/chain.py", LEDGER),
    "cursor": ("ledger/cursor.py", LEDGER),
    "cursor_store": ("ledger/cursor_store.py", LEDGER),
    "producer_recovery": (
        "broker/log/producer_recovery.py",
        ("tests/unit/broker/test_producer_recovery.py", "tests/unit/broker/test_transaction_index.py"),
    ),
}
# Mutants that behave as the original does, as they are printed, and why.
EQUIVALENT: Final[dict[tuple[str, str], str]] = {
    (
        "chain",
        "index -= 1  ->  left out",
    ): "behind an empty ledger stands one that begins at the same offset, or nothing",
}

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


class Site(NamedTuple):
    """A place that can be changed: the number of its node in `ast.walk`, and how."""

    number: int
    change: "_Change"


class Mutant(NamedTuple):
    line: int
    before: str
    after: str
    source: str


def sites(text: str) -> list[Site]:
    return [
        Site(index, change)
        for index, node in enumerate(ast.walk(ast.parse(text)))
        for change in _changes(node)
    ]


def mutant(text: str, site: Site) -> Mutant:
    tree = ast.parse(text)
    target = next(node for number, node in enumerate(ast.walk(tree)) if number == site.number)
    before = _line_of(target)
    after = site.change(target, tree)
    return Mutant(getattr(target, "lineno", 0), before, after, ast.unparse(ast.fix_missing_locations(tree)))


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
    """Changes `node` of `tree` in place; the line as it is then."""

    def __call__(self, node: ast.AST, tree: ast.AST) -> str: ...


class _Swap(_Change):
    def __init__(self, place: int) -> None:
        self._place = place

    def __call__(self, node: ast.AST, tree: ast.AST) -> str:
        if isinstance(node, ast.Compare):
            old: ast.AST = node.ops[self._place]
            node.ops[self._place] = _SWAPPED[type(old)]()  # type: ignore[call-overload]
        elif isinstance(node, ast.BoolOp | ast.BinOp):
            node.op = _SWAPPED[type(node.op)]()  # type: ignore[assignment]
        return _line_of(node)


class _Unnot(_Change):
    def __call__(self, node: ast.AST, tree: ast.AST) -> str:
        assert isinstance(node, ast.UnaryOp)
        node.op = ast.UAdd()  # of a bool: the same truth as without `not`
        operand = node.operand
        node.operand = ast.Call(ast.Name("bool", ast.Load()), [operand], [])
        return _line_of(node)


class _OffByOne(_Change):
    def __call__(self, node: ast.AST, tree: ast.AST) -> str:
        assert isinstance(node, ast.Constant)
        assert isinstance(node.value, int)
        old, node.value = node.value, node.value + 1
        return f"{old + 1} for {old}"


class _LeaveOut(_Change):
    def __call__(self, node: ast.AST, tree: ast.AST) -> str:
        for parent in ast.walk(tree):
            for name in ("body", "orelse", "finalbody"):
                body = getattr(parent, name, None)
                if isinstance(body, list) and node in body:
                    body[body.index(node)] = ast.Pass()
        return "left out"


def _line_of(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node)).split("\n")[0][:110]


def run(tests: tuple[str, ...], source: Path) -> bool:
    """Whether the tests pass on this copy of `src`."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        *tests,
    ]
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def examine(name: str, sample: int | None, seed: int) -> list[Mutant]:
    """The survivors of a module."""
    path, tests = MODULES[name]
    text = (SOURCE / "magnetar" / path).read_text()
    every = sites(text)
    chosen = every if sample is None else random.Random(seed).sample(every, min(sample, len(every)))
    survivors = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="magnetar-mutants-") as directory:
        source = Path(directory) / "src"
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
        target = source / "magnetar" / path
        assert run(tests, source), f"the tests of {name} fail without any change"
        for site in chosen:
            one = mutant(text, site)
            if (name, f"{one.before}  ->  {one.after}") in EQUIVALENT:
                continue
            target.write_text(one.source)
            if run(tests, source):
                survivors.append(one)
                print(f"  {path}:{one.line}: {one.before}  ->  {one.after}", flush=True)
    print(
        f"{name}: {len(survivors)} of {len(chosen)} mutants survive (of {len(every)}),"
        f" {time.monotonic() - began:.0f} s"
    )
    return survivors


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", choices=[*MODULES, []], help="default: count the mutants")
    parser.add_argument("--sample", type=int, default=None, help="so many of each module, chosen at random")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not options.modules:
        for name, (path, _) in MODULES.items():
            print(f"{name}: {len(sites((SOURCE / 'magnetar' / path).read_text()))} mutants")
        return 0
    survivors = [examine(name, options.sample, options.seed) for name in options.modules]
    return 1 if any(survivors) else 0


if __name__ == "__main__":
    raise SystemExit(main())
