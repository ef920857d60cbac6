"""The page of what clients see who log in is made from what the clients are expected to see."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "login_reference.py"
SUITE = ROOT / "tests" / "compat" / "logins"


def test_the_page_of_logins_is_what_clients_are_expected_to_see() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["FILE"].read_text() == tool["render"](), (
        f"run `make generate` ({TOOL.name}) and commit the page"
    )


def test_each_login_is_on_the_allow_list_with_right_and_with_wrong_credentials() -> None:
    rows = runpy.run_path(str(SUITE / "table.py"))["rows"]((SUITE / "expected.txt").read_text())
    listed = [line for line in (SUITE / "allow.txt").read_text().splitlines() if not line.startswith("#")]
    assert listed == [one.test_id for one in rows]
    cases = {one: {row.case for row in rows if row[:2] == one} for one in {row[:2] for row in rows}}
    assert all(found == {"right", "wrong"} for found in cases.values()), cases
    assert not [row for row in rows if (row.case == "right") != (row.here == "let in")]
