"""No hand-written file is longer than a reader can hold: a longer one is cut where the reader sees a seam."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
FOLDERS = ("src", "tests", "bench", "demo", "tools", "examples")
GENERATED = ("wire/kafka/messages/", "_pb2.py")
LINES_MAX = 500
# Files that have no seam, by path, each with the reason.
EXCEPTIONS: dict[str, str] = {}


def lengths(root: Path) -> dict[str, int]:
    """The number of lines of each module that is written by hand, by path."""
    found = {}
    for path in (path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        name = str(path.relative_to(root))
        # Folders with a dot hold what suites and benchmarks have fetched.
        if not any(part in name for part in GENERATED) and "/." not in name:
            found[name] = len(path.read_text(encoding="utf-8").splitlines())
    return found


def too_long(found: dict[str, int]) -> dict[str, int]:
    return {name: lines for name, lines in found.items() if lines > LINES_MAX}


def test_no_file_is_too_long_except_those_that_say_why() -> None:
    found = lengths(REPOSITORY)
    assert len(found) > 1_000
    unexplained = {name: lines for name, lines in too_long(found).items() if name not in EXCEPTIONS}
    assert not unexplained, f"more than {LINES_MAX} lines: cut each of them where a reader sees a seam"
    assert EXCEPTIONS.keys() <= too_long(found).keys(), "an exception is not needed any more"


@pytest.mark.parametrize(("lines", "is_found"), [(LINES_MAX, False), (LINES_MAX + 1, True)])
def test_a_long_file_would_be_found(tmp_path: Path, lines: int, is_found: bool) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "part.py").write_text("pass\n" * lines)
    assert bool(too_long(lengths(tmp_path))) is is_found
