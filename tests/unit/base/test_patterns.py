"""What clients' patterns may cost before they are run."""

import contextlib
import time

import pytest

from magnetar.base.patterns import PATTERN_CHARS_MAX, UNICODE_CLASSES_MAX, whole_matcher


@pytest.mark.parametrize(
    "pattern",
    [
        "\\pL" * 1365,
        "\\PL" * 1365,
        "(?i)[^\\pL\\pN]" * 300,
        "\\pL" * UNICODE_CLASSES_MAX,
        "(a{1000}|b)" * 370,
        ".{1000}" * 500,
        "." * PATTERN_CHARS_MAX,
        "(.?){1000}",
    ],
)
def test_no_pattern_takes_long_to_read(pattern: str) -> None:
    """Of 4,096 characters, with 8 MiB of memory, one took 0.2 s of the event loop."""
    whole_matcher("a")  # imports RE2
    took_s = []
    for _ in range(3):  # the best of some: a collection of garbage is none of its
        began_s = time.thread_time()
        with contextlib.suppress(ValueError):
            whole_matcher(pattern)
        took_s.append(time.thread_time() - began_s)
    assert min(took_s) < 0.04


def test_as_many_classes_as_may_be_are_taken() -> None:
    classes = "\\pL?" * 10 + "\\p{Greek}*" * (UNICODE_CLASSES_MAX - 10)
    assert whole_matcher(classes)("abc")
    with pytest.raises(ValueError, match="classes of Unicode"):
        whole_matcher(classes + "\\pN")


def test_a_pattern_means_a_whole_name() -> None:
    matches = whole_matcher("a.|b")
    assert [name for name in ("a", "ab", "abc", "b") if matches(name)] == ["ab", "b"]


def test_a_pattern_may_be_held_to_fewer_characters() -> None:
    with pytest.raises(ValueError, match="longer than 3 characters"):
        whole_matcher("abcd", 3)
