"""Names that clients chose, as parts of paths."""

import pytest

from magnetar.metadata import path_parts
from magnetar.metadata.path_parts import escape, unescape


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "%", "\u00e9", "x" * 256, "x" * 257, "\u00e9" * 16_000]
)
def test_a_part_is_one_and_leads_back(name: str) -> None:
    part = escape(name)
    assert part
    assert "/" not in part
    assert part not in (".", "..")
    assert unescape(part) == name


def test_long_names_are_not_kept() -> None:
    """Five thousand groups of 24 KB, of which none was left, were 880 MiB until the server ended."""
    before = path_parts._escaped.cache_info().currsize, path_parts._unescaped.cache_info().currsize
    assert unescape(escape("\u00e9" * 12_000)) == "\u00e9" * 12_000
    after = path_parts._escaped.cache_info().currsize, path_parts._unescaped.cache_info().currsize
    assert after == before
