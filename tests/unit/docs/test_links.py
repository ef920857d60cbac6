"""No page of the documentation points at a file that is not there, or is found from nowhere."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("tests/*/README.md")]
)


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
