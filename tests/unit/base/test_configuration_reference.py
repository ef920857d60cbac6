import runpy
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "configuration_reference.py"


def test_the_reference_page_is_what_the_tables_say() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["FILE"].read_text() == tool["render"](), f"run python {TOOL.name} and commit the page"
