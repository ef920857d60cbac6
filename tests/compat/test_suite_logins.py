"""How the runner reads what clients saw, and what they are to see; nothing is started here."""

import pytest
import suite_logins
from logins import table
from outcomes import Outcome, Status

EXPECTED = {"a::PLAIN::right": "let in", "a::PLAIN::wrong": "Refused: no"}


def test_what_a_client_saw_is_what_it_is_to_see_or_a_failure() -> None:
    def outcome(line: str) -> Outcome | None:
        return suite_logins.outcome_of(line, EXPECTED)

    assert outcome("SEEN a::PLAIN::right 1.5 let in") == Outcome("a::PLAIN::right", Status.PASSED, 1.5)
    assert outcome("SEEN a::PLAIN::wrong 0.1 Refused: no") == Outcome("a::PLAIN::wrong", Status.PASSED, 0.1)
    for_all = outcome("SEEN a::PLAIN::wrong 0.1 let in")
    assert for_all is not None
    assert (for_all.status, for_all.detail) == (Status.FAILED, "saw 'let in', expected 'Refused: no'")
    assert outcome("a warning of Java's") is None
    new = outcome("SEEN b::TLS::wrong 0.1 let in")
    assert new is not None
    assert new.status is Status.FAILED


def test_a_line_says_what_is_seen_here_and_where_apache_differs() -> None:
    one, other = table.rows("# why\n\na::TLS::right | let in\nb::TLS::wrong | x y | -\n")
    assert one == table.Seen("a", "TLS", "right", "let in", "let in")
    assert other == table.Seen("b", "TLS", "wrong", "x y", "-")


@pytest.mark.parametrize(
    "text",
    ["a::TLS | x", "a::TLS::right", "a::TLS::right | ", "a::b::c | x | y | z", "a::b::c | x\na::b::c | x"],
)
def test_a_line_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not one login"):
        table.rows(text)


def test_what_apache_does_not_have_is_not_asked_of_it() -> None:
    at_kafka, at_pulsar = table.expected("kafka"), table.expected("pulsar")
    assert "franz-go::PLAIN-token::right" in table.expected("magnetar").keys() - at_kafka.keys()
    assert at_kafka["franz-go::mTLS::wrong"] == "tls: bad certificate"
    assert at_kafka.keys().isdisjoint(at_pulsar)
    assert {one.split("::")[0] for one in at_pulsar} >= {"pulsar-client", "pulsar-admin", "pulsaradmin-go"}
