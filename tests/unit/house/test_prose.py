"""Docs, docstrings and comments name the actor: no words that leave open who does what."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
VAGUE = re.compile(
    r"\b(somebody|someone|nobody|everybody|anybody|anyone|whoever|who comes|those who|"
    r"(is|are|be|been|being|was|were|gets?|not) told)\b",
    re.IGNORECASE,
)


def vague(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if VAGUE.search(line)]


def texts() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "newsfragments").glob("*.md"),
        *(one for one in (ROOT / "src").rglob("*.py") if not one.name.endswith("_pb2.py")),
    ]


def test_every_sentence_names_its_actor() -> None:
    found = {str(one.relative_to(ROOT)): lines for one in texts() if (lines := vague(one.read_text()))}
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "Somebody has to close it.",
        "what the caller is told",
        "what it has not been told",
        "# who comes later",
        "nobody needs it",
        "Whoever waits gets it.",
        "those who wait for it",
    ],
)
def test_a_vague_line_is_found(line: str) -> None:
    assert vague(f"clear\n{line}\n") == [line]
