"""No page of the documentation points at a file that is not there, or is found from nowhere."""

import re
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("tests/*/README.md")]
)


# What a newcomer follows from `git clone` to a change names files also without a link.
FOLLOWED = (REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "docs" / "internals" / "architecture.md")
NAMED = re.compile(r"`([\w./-]+\.(?:py|txt|md|toml)|[\w-]+/[\w./-]+/)`")


def links(page: Path) -> list[Path]:
    """The files that a page links to."""
    targets: list[str] = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())
    return [(page.parent / target).resolve() for target in targets]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_a_page_links_to_is_there(page: Path) -> None:
    assert [str(target) for target in links(page) if not target.exists()] == []


def test_every_page_of_docs_is_linked_from_its_table_of_contents() -> None:
    contents = REPOSITORY / "docs" / "README.md"
    pages = {page for page in PAGES if page.is_relative_to(contents.parent)} - {contents}
    assert pages - set(links(contents)) == set()


@cache
def sources() -> frozenset[str]:
    """Each file and folder that may be named, by every end of its path: `broker/log/`, `log/partition.py`."""
    found = {path for path in REPOSITORY.glob("*") if path.is_file()}
    for folder in ("bench", "demo", "docs", "examples", "newsfragments", "src", "tests", "tools"):
        found |= {REPOSITORY / folder, *(REPOSITORY / folder).rglob("*")}
    parts = [path.relative_to(REPOSITORY).parts for path in found if path.name != "__pycache__"]
    return frozenset("/".join(one[begin:]) for one in parts for begin in range(len(one)))


def absent(text: str) -> list[str]:
    return [name for name in NAMED.findall(text) if name.rstrip("/") not in sources()]


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: str(page.name))
def test_what_a_newcomer_follows_names_only_files_that_are_there(page: Path) -> None:
    assert absent(page.read_text()) == []


def test_a_name_of_no_file_would_be_found() -> None:
    assert absent(
        "in `broker/log/partition.py`, `usecases/handles.py` and `tests/unit/`, not `no_file.py`"
    ) == ["no_file.py"]
    assert absent("`broker/gone.py`, `src/magnetar/gone/`") == ["broker/gone.py", "src/magnetar/gone/"]
