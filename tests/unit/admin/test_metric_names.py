"""The names of metrics, their types and labels are those that dashboards were made for."""

import runpy
from pathlib import Path

# A new metric is a new line there; a line that changes or goes breaks a dashboard.
NAMES = Path(__file__).parents[2] / "metrics.txt"
TOOL = Path(__file__).parents[3] / "tools" / "metrics_reference.py"


def test_metrics_have_the_names_types_and_labels_that_are_known() -> None:
    declared = runpy.run_path(str(TOOL))["declared"]()
    found = [f"{one.name} {one.type} {','.join(one.labels)}".strip() for one in declared]
    assert sorted(found) == NAMES.read_text().splitlines()
