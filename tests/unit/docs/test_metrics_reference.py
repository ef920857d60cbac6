"""The page of metrics is made from what the server declares, and each metric says there what it counts."""

import runpy
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "metrics_reference.py"


def test_the_page_of_metrics_is_what_the_server_declares() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["FILE"].read_text() == tool["render"](), (
        f"run `make generate` ({TOOL.name}) and commit the page"
    )


def test_each_metric_says_what_it_counts() -> None:
    for one in runpy.run_path(str(TOOL))["declared"]():
        assert len(one.meaning.split()) > 1, one
        assert one.meaning.endswith("."), one
