"""The page of who may do what is written from what the tests found the verbs to ask, and from the rule book."""

import runpy
from pathlib import Path
from typing import Final

TOOL: Final = Path(__file__).parents[3] / "tools" / "authorization_reference.py"


def test_the_reference_page_is_what_verbs_ask_and_rules_give() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["FILE"].read_text() == tool["render"](), f"run python {TOOL.name} and commit the page"
