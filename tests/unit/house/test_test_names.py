"""Names of test files: pytest cannot tell two of one name apart where their folders are no packages."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[2]


def test_no_two_test_files_outside_of_packages_have_one_name() -> None:
    loose = [path.name for path in TESTS.rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    assert len(loose) > 100
    assert [name for name, count in Counter(loose).items() if count > 1] == []
