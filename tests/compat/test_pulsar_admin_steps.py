"""What pulsar-admin is to say, and whether it has said it; nothing is started here."""

import pytest
import suite_pulsar_admin
from outcomes import Status, read_allow_list
from pulsar_admin_steps import FILE, Step, outcomes, steps

TEXT = """
# why
[topics]
create t
stats t => msgBacklog
client produce -m one t
offload t !! Offloading: not supported.
offload u
"""
NOISE = "2026-11-25T20:11:50,324+0000 [x] WARN  org.apache.Base - failed: HTTP 501\n\tat java.base/a.b\n"


def test_steps_are_read_group_by_group() -> None:
    found = steps(TEXT)
    assert found[1] == Step("topics", "stats t", "msgBacklog")
    assert found[3] == Step("topics", "offload t", refused="Offloading: not supported.")
    assert [one.is_of_admin for one in found] == [True, True, False, True, True]
    assert found[0].line({"web": 1}) == "admin topics create t"
    with pytest.raises(ValueError, match="no group"):
        steps("create t")


@pytest.mark.parametrize(
    ("step", "output", "is_right"),
    [
        (Step("g", "c"), "", True),
        (Step("g", "c"), "no\n\nReason: no\n", False),
        (Step("g", "c"), "Usage: c\n", False),
        (Step("g", "c", "yes"), "yes", True),
        (Step("g", "c", "yes"), "Yes", False),
        (Step("g", "c", "HTTP 501"), NOISE, False),
        (Step("g", "c", refused="no"), f"{NOISE}no\n\nReason: no\n", True),
        (Step("g", "c", refused="no"), "Reason: not so\nReason: never", False),
        (Step("g", "c", refused="no"), "", False),
    ],
)
def test_what_was_printed_is_right_or_wrong(step: Step, output: str, is_right: bool) -> None:
    assert (not step.problem(output)) is is_right


def test_a_command_passes_when_all_its_steps_do() -> None:
    printed = ["", "no backlog", "", "Reason: Offloading: not supported.\n", ""]
    found = {
        one.test_id: one.status
        for one in suite_pulsar_admin.judged(zip(steps(TEXT), printed, strict=True), 0.1)
    }
    assert found == {
        "topics::create": Status.PASSED,
        "topics::stats": Status.FAILED,
        "topics::offload": Status.PASSED,
    }


def test_a_command_that_works_somehow_works() -> None:
    assert list(outcomes(steps(TEXT))) == [
        ("topics", "create", ""),
        ("topics", "stats", ""),
        ("topics", "offload", ""),
    ]


def test_each_command_is_on_the_allow_list() -> None:
    listed = read_allow_list(FILE.parent / "allow.txt")
    assert listed == list(dict.fromkeys(one.test_id for one in steps(FILE.read_text()) if one.is_of_admin))
