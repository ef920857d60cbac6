"""Runs the tests of one mutant after the other, each in a process of its own that is forked from this one.

This process has imported pytest and whatever else the tests import, but nothing of the product: a child imports that
anew, from a copy of `src` in which the mutant stands, and so does every process that a test starts.  Nothing is
patched, so there is no mutant that cannot be run so.

A first run without any change says which tests run which lines and how long they take.  A mutant gets the tests that
run its lines, the fast ones first.  Two kinds of tests are given to every mutant, since it is not known which lines
they run: those that start processes, and all of them when its line ran before the first test, in an import.

A test that takes several times as long as before has found the mutant too.
"""

import compileall
import gc
import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import hypothesis
import pytest

from mutation.changes import Mutant
from mutation.plugins import FAILED, NO_TEST, Chosen, Lessons

STARTING_S: Final = 60.0
"""To import the product and to collect the tests."""
ENDING_S: Final = 10.0
TIMES: Final = 10.0
"""A test may take so many times what it took before, and some seconds."""
FILE_BYTES_MAX: Final = 4 << 30
NOT_THE_MUTANT: Final = 77
SCRATCH: Final = Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(tempfile.gettempdir())

OPTIONS: Final = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-o", "timeout=0")


class Learned(NamedTuple):
    """Of a set of tests, without any change."""

    seconds: dict[str, float]
    parents: frozenset[str]
    modules: list[str]
    lines: dict[str, dict[int, list[int]]]
    """By path below `src`: the numbers of the tests."""

    def tests_of(self, path: str, first: int, last: int) -> list[str]:
        """Those that run one of these lines, or may; the fast ones first."""
        lines = self.lines.get(path, {})
        numbers = {number for line in range(first, last + 1) for number in lines.get(line, ())}
        names = list(self.seconds)
        tests = set(names) if NO_TEST in numbers else {names[number] for number in numbers} | self.parents
        return sorted(tests, key=lambda test: (self.seconds[test], test))

    def first_of(self, tests: list[str], seconds_max: float) -> list[str]:
        """As many of these, from the first one on, as take that long together."""
        ends = itertools.accumulate(self.seconds[test] for test in tests)
        return [test for test, end in zip(tests, ends, strict=True) if end <= seconds_max]


class Verdict(NamedTuple):
    how: str
    """`killed`, `hung`, `survived`, or `unfinished`: not all of the tests were tried."""
    test: str
    """The test that found it, or how many did not."""
    seconds: float

    @property
    def is_survivor(self) -> bool:
        return self.how in ("survived", "unfinished")


class Bench:
    """A copy of `src`, in which one file at a time is another one."""

    def __init__(self, root: Path, patience_s: float) -> None:
        self._root = root
        self._patience_s = patience_s
        self._folder = Path(tempfile.mkdtemp(prefix="mutants-", dir=SCRATCH))
        self.source = self._folder / "src"
        self._log = self._folder / "log"
        shutil.copytree(root / "src", self.source, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(self.source, quiet=2)

    def close(self) -> None:
        shutil.rmtree(self._folder)

    # -- without any change

    def learn(self, tests: list[str], files: list[str], cache: Path) -> Learned:
        """What the tests do with these files; from `cache` when they and the product are what they were then."""
        known = cache / f"lessons-{digest_of(self._root, tests)}.json"
        if not known.exists():
            fresh = self._folder / "lessons.json"
            child = self._fork(lambda: self._learn_in_child(tests, files, fresh))
            _, status = os.waitpid(child, 0)
            if os.waitstatus_to_exitcode(status) != 0:
                raise SystemExit(f"the tests fail without any change:\n{self._log.read_text()[-4000:]}")
            shutil.copy(fresh, known)
        data = json.loads(known.read_text())
        return Learned(
            data["seconds"],
            frozenset(data["parents"]),
            data["modules"],
            {
                path: {int(line): numbers for line, numbers in lines.items()}
                for path, lines in data["lines"].items()
            },
        )

    def _learn_in_child(self, tests: list[str], files: list[str], path: Path) -> int:
        lessons = Lessons([str(self.source / file) for file in files])
        lessons.start()
        code = int(pytest.main([*self._options(), *tests], plugins=[lessons]))
        lessons.write(path)
        data = json.loads(path.read_text())
        data["lines"] = {os.path.relpath(file, self.source): lines for file, lines in data["lines"].items()}
        path.write_text(json.dumps(data))
        return code

    # -- with one

    def try_out(
        self, path: str, mutant: Mutant, learned: Learned, seconds_max: float | None = None
    ) -> Verdict:
        """Whether a test finds it; with `seconds_max` only those are tried that took no longer, together."""
        every = learned.tests_of(path, *mutant.lines)
        tests = every if seconds_max is None else learned.first_of(every, seconds_max)
        began = time.monotonic()
        if not tests:
            return Verdict("survived", "no test runs it", 0.0)
        target = self.source / path
        original = target.read_text()
        # Of a file that is written twice in a second, compiled code may be taken for the wrong one's: there is none.
        Path(importlib.util.cache_from_source(str(target))).unlink(missing_ok=True)
        target.write_text(mutant.source)
        try:
            how, test = self._run(path, tests, learned)
        finally:
            target.write_text(original)
        if how == "survived" and len(tests) < len(every):
            how = "unfinished"
        return Verdict(how, test, round(time.monotonic() - began, 2))

    def _run(self, path: str, tests: list[str], learned: Learned) -> tuple[str, str]:
        reading, writing = os.pipe()
        child = self._fork(lambda: self._try_in_child(path, tests, writing))
        os.close(writing)
        test, allowed, hangs = "the imports", STARTING_S, False
        try:
            while True:
                readable, _, _ = select.select([reading], [], [], allowed)
                if not readable:
                    hangs = True
                    break
                number = os.read(reading, 4)
                if not number:
                    break
                test = tests[int.from_bytes(number, "big")]
                allowed = self._patience_s + TIMES * learned.seconds[test]
        finally:
            os.close(reading)
            code = _end(child, at_once=hangs)
        if hangs:
            return "hung", test
        if code == 0:
            return "survived", f"{len(tests)} tests"
        if code == NOT_THE_MUTANT:
            raise RuntimeError(f"the tests did not run the mutant:\n{self._log.read_text()[-4000:]}")
        return "killed", test

    def _try_in_child(self, path: str, tests: list[str], pipe: int) -> int:
        files = sorted({test.split("::")[0] for test in tests})
        code = int(pytest.main([*self._options(), *files], plugins=[Chosen(tests, pipe)]))
        module = sys.modules.get(path.removesuffix(".py").replace("/", "."))
        if module is not None and module.__file__ != str(self.source / path):
            return NOT_THE_MUTANT
        return FAILED if code else 0

    # -- processes

    def _options(self) -> list[str]:
        return [
            *OPTIONS,
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
            f"--rootdir={self._root}",
            f"--basetemp={self._folder}/tmp/pytest",
        ]

    def _fork(self, body: Callable[[], int]) -> int:
        """The id of a child in a group of its own that does `body` and ends with its result."""
        scratch = self._folder / "tmp"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        child = os.fork()
        if child:
            return child
        code = FAILED
        try:
            os.setsid()
            os.chdir(self._root)
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for old, new in ((nothing, 0), (log, 1), (log, 2)):
                os.dup2(old, new)
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.environ.update(PYTHONPATH=str(self.source), PYTHONDONTWRITEBYTECODE="1", TMPDIR=str(scratch))
            tempfile.tempdir = None
            sys.dont_write_bytecode = True
            sys.path[:0] = [str(self.source), str(self._root)]
            # The same examples in each run, and no search for a smaller one: a failure is all there is to know.
            hypothesis.settings.register_profile(
                "mutants",
                derandomize=True,
                database=None,
                phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            )
            hypothesis.settings.load_profile("mutants")
            code = body()
        finally:
            os._exit(code)


def prepare(modules: list[str]) -> None:
    """Import what the children would import one by one."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    assert threading.active_count() == 1, "a process with threads cannot be forked"
    gc.collect()
    gc.freeze()


def _end(child: int, *, at_once: bool) -> int:
    """How it ended.  What its tests have started ends too."""
    ends = time.monotonic() + (0 if at_once else ENDING_S)
    while (
        time.monotonic() < ends and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):
        time.sleep(0.005)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def digest_of(root: Path, tests: list[str]) -> str:
    """Of all that the tests can depend on."""
    folders = [root / "src", *(root / test for test in tests)]
    files = [*root.glob("tests/**/conftest.py"), *(file for folder in folders for file in _sources(folder))]
    digest = hashlib.sha256(json.dumps(tests).encode())
    for file in sorted(files):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _sources(path: Path) -> list[Path]:
    return list(path.rglob("*.py")) if path.is_dir() else [path]
