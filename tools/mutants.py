"""Change the modules that keep data in one place at a time, and see whether their tests notice.

    python tools/mutants.py                     what there is to be changed, by module
    python tools/mutants.py catalogue chain     every mutant of these; --sample 40 --seed 1 for some of them

A mutant (`mutation/changes.py`) is *killed* when the module's own tests fail or hang (`mutation/runs.py`).  Survivors
are printed; a survivor is a missing test, or a change that cannot be told from the original.  Those have a line in
`mutants.toml` with the reason, and are not run.

What was found of each mutant is a line in `.mutants/<module>.jsonl`.  A run goes on from there: killed stays killed
while the module is as it was, and survivors are tried again when a test has changed.
"""

import argparse
import hashlib
import json
import os
import random
import re
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

from mutation.changes import Mutant, mutants
from mutation.runs import Bench, Learned, Verdict, digest_of, prepare

REPOSITORY: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ".mutants"


class Module(NamedTuple):
    name: str
    path: str
    """Below `src`."""
    tests: list[str]
    siblings: list[str]
    """The paths of all that the same tests are for, also this one."""
    equivalent: dict[str, str]
    """Why mutants of this name behave as the original does; a `*` at the end of the name stands for anything."""

    def equivalence(self, mutant: Mutant) -> str | None:
        """The name in `equivalent` that is this mutant's."""
        if mutant.name in self.equivalent:
            return mutant.name
        return next(
            (
                name
                for name in self.equivalent
                if name.endswith("*") and mutant.name.startswith(name.removesuffix("*"))
            ),
            None,
        )


class Results:
    """What was found of a module's mutants, in a file that several processes add lines to."""

    def __init__(self, path: Path, source: str, tests: str) -> None:
        path.parent.mkdir(exist_ok=True)
        self._path = path
        self._stamp = {"source": source, "tests": tests}
        self._found: dict[str, Verdict] = {}

    def read(self, *, unfinished: bool = False) -> None:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in map(json.loads, lines):
            verdict = Verdict(line["how"], line["test"], line["seconds"])
            is_same = line["source"] == self._stamp["source"] and (unfinished or verdict.how != "unfinished")
            if is_same and (not verdict.is_survivor or line["tests"] == self._stamp["tests"]):
                self._found[line["mutant"]] = verdict

    def of(self, mutant: Mutant) -> Verdict | None:
        return self._found.get(mutant.name)

    def add(self, mutant: Mutant, verdict: Verdict) -> None:
        self._found[mutant.name] = verdict
        line = {"mutant": mutant.name, "line": mutant.line, **verdict._asdict(), **self._stamp}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def examine(module: Module, options: argparse.Namespace) -> bool:
    """Whether none survives that is not known to be equivalent."""
    root: Path = options.root
    began = time.monotonic()
    text = (root / "src" / module.path).read_text()
    every = mutants(text)
    unknown = module.equivalent.keys() - {module.equivalence(mutant) for mutant in every}
    if unknown:
        raise SystemExit(
            "\n".join(f"{module.name} has no mutant of this name: {name}" for name in sorted(unknown))
        )
    different = [mutant for mutant in every if module.equivalence(mutant) is None]
    chosen = different
    if options.only is not None:
        chosen = [mutant for mutant in chosen if re.search(options.only, mutant.name)]
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    source = hashlib.sha256(text.encode()).hexdigest()[:16]
    results = Results(root / RESULTS / f"{module.name}.jsonl", source, digest_of(root, module.tests))
    results.read()
    left = [mutant for mutant in chosen if results.of(mutant) is None]
    if left:
        _try_out(left, module, results, options)
        results.read(unfinished=True)
    found = [(mutant, results.of(mutant)) for mutant in chosen]
    survivors = [
        (mutant, verdict) for mutant, verdict in found if verdict is not None and verdict.is_survivor
    ]
    for mutant, verdict in survivors:
        print(f"  src/{module.path}:{mutant.line}: {mutant.name}  ({verdict.how}: {verdict.test})")
    hung = sum(1 for _, verdict in found if verdict is not None and verdict.how == "hung")
    print(
        f"{module.name}: {len(every)} mutants, {len(every) - len(different)} equivalent, {len(chosen)} run:"
        f" {len(chosen) - len(survivors)} killed ({hung} of them hung), {len(survivors)} survive;"
        f" {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return not survivors


def _try_out(left: list[Mutant], module: Module, results: Results, options: argparse.Namespace) -> None:
    bench = Bench(options.root, options.patience)
    try:
        learned = bench.learn(module.tests, module.siblings, options.root / RESULTS)
    finally:
        bench.close()
    prepare(learned.modules)
    shares = [left[first :: options.jobs] for first in range(options.jobs)]
    workers = [_start(share, module, learned, results, options) for share in shares]
    codes = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
    if any(codes):
        raise SystemExit("a worker has failed")


def _start(
    share: list[Mutant], module: Module, learned: Learned, results: Results, options: argparse.Namespace
) -> int:
    """The id of a process that tries out this share."""
    sys.stdout.flush()
    worker = os.fork()
    if worker:
        return worker
    code = 1
    try:
        bench = Bench(options.root, options.patience)
        try:
            for mutant in share:
                results.add(mutant, bench.try_out(module.path, mutant, learned, options.seconds))
        finally:
            bench.close()
        code = 0
    finally:
        os._exit(code)


def read_table(path: Path) -> dict[str, Module]:
    table: dict[str, Any] = tomllib.loads(path.read_text())
    return {
        name: Module(
            name,
            entry["path"],
            entry["tests"],
            [other["path"] for other in table.values() if other["tests"] == entry["tests"]],
            entry.get("equivalent", {}),
        )
        for name, entry in table.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", help="default: count the mutants")
    parser.add_argument("--sample", type=int, default=None, help="so many of each module, chosen at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="REGEX", default=None, help="those whose name it is found in")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    parser.add_argument(
        "--seconds", type=float, default=None, help="for a first look: only as many tests as take that long"
    )
    parser.add_argument("--patience", type=float, default=10.0, help="seconds that any test may take")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="where src and tests are")
    parser.add_argument("--table", type=Path, default=Path(__file__).with_name("mutants.toml"))
    options = parser.parse_args()
    table = read_table(options.table)
    if not options.modules:
        for name, module in table.items():
            print(f"{name}: {len(mutants((options.root / 'src' / module.path).read_text()))} mutants")
        return 0
    if unknown := set(options.modules) - table.keys():
        parser.error(f"no module of this name: {', '.join(sorted(unknown))}")
    held = [examine(table[name], options) for name in options.modules]
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main())
