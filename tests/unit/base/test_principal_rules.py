"""Names by rules: the answers are those of Java's `Matcher` and `replaceAll`, which Kafka's own mapper calls."""

import time

import pytest

from magnetar.base.principal_rules import parse_principal_rules

DAVE = "CN=Dave,OU=People,O=Magnetar"


def name(rules: str, distinguished_name: str = DAVE) -> str | None:
    return parse_principal_rules(rules).name_of(distinguished_name)


@pytest.mark.parametrize(
    ("rules", "of", "expected"),
    [
        ("DEFAULT", DAVE, DAVE),
        ("RULE:^CN=([A-Za-z0-9.-]+),OU=People.*$/$1/L,DEFAULT", DAVE, "dave"),
        (
            "RULE:^CN=([A-Za-z0-9.-]+),OU=People.*$/$1/L,DEFAULT",
            "OU=Robots,O=Magnetar",
            "OU=Robots,O=Magnetar",
        ),
        (
            "RULE:^CN=(.*?),OU=Service.*$/$1/ , RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U, DEFAULT",
            DAVE,
            "DAVE@PEOPLE",
        ),
        ("RULE:^CN=([^,]+),.*$/$1/,,", DAVE, "Dave"),
        # a pattern has to fit the whole name
        ("RULE:CN=Dave/x/", DAVE, None),
        ("RULE:Dave/x/", DAVE, None),
        ("RULE:^CN=(.*?),.*$/$1/", "OU=Robots", None),
        # a slash, and what a backslash takes away
        (r"RULE:^CN=a\/b$/c\/d/", "CN=a/b", "c/d"),
        (r"RULE:^CN=(.*)$/\$1\\/", "CN=a", r"$1\ ".strip()),
        # references
        ("RULE:^CN=(?<who>[^,]+).*$/${who}/", DAVE, "Dave"),
        ("RULE:^CN=([^,]+).*$/$12/", DAVE, "Dave2"),
        ("RULE:^CN=([^,]+).*$/$0/", DAVE, DAVE),
        ("RULE:^CN=([^,]+).*$/$1@$4/", DAVE, "Dave@$4"),
        ("RULE:^(a)?.*$/<$1>/", "b", "<>"),
        # every place that fits is replaced, also the empty one behind all
        ("RULE:.*/x/", DAVE, "xx"),
        ("RULE:^.*$/x/", DAVE, "x"),
        ("RULE:CN=(.*?)/x$1/", DAVE, "xDave,OU=People,O=Magnetar"),
        ("RULE:.*/x/", "", "x"),
        ("RULE:^CN=(.)$/$1/U", "CN=ä", "Ä"),
    ],
)
def test_the_first_rule_that_fits_gives_the_name(rules: str, of: str, expected: str | None) -> None:
    assert name(rules, of) == expected


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ("", "has no rule: no client's"),
        (" , ", "has no rule"),
        ("DEFAULTS", "has no rule at 'DEFAULTS'"),
        ("RULE:a/b", "has no rule at 'RULE:a/b'"),
        ("RULE:a/b/X", "has no rule at 'RULE:a/b/X'"),
        ("RULE:a/b/LU", "has no rule at"),
        ("DEFAULT,nonsense", "has no rule at 'nonsense'"),
        ("RULE:(?=a)b/x/", "which RE2 cannot run: invalid perl operator: (?="),
        (r"RULE:(a)\1/x/", "which RE2 cannot run"),
        ("RULE:a++/x/", "which RE2 cannot run"),
        ("RULE:(/x/", "which RE2 cannot run"),
        ("RULE:[a-z&&[^b]]/x/", "which RE2 reads in another way than Java"),
        ("RULE:[[:alpha:]]/x/", "which RE2 reads in another way than Java"),
        (r"RULE:\0101/x/", "which RE2 reads in another way than Java"),
        ("RULE:(?iU)a/x/", "which RE2 reads in another way than Java"),
        ("RULE:a/$1/", "'$1', and its pattern has no groups"),
        ("RULE:(a)/$/", "with a $ that names no group"),
        ("RULE:(a)/${b}/", "with a $ that names no group"),
        ("RULE:^(?i)CN=kafka-super,.*$/super/", "reads in another way than Java"),
        ("RULE:^(?si:CN=a).*$/a/", "reads in another way than Java"),
    ],
)
def test_what_is_no_rule_or_cannot_be_used_here_is_refused(rules: str, sentence: str) -> None:
    with pytest.raises(ValueError) as said:  # noqa: PT011 - the sentence is looked at
        parse_principal_rules(rules)
    assert sentence in str(said.value)


def test_brackets_and_ampersands_that_mean_the_same_are_taken() -> None:
    assert name(r"RULE:^CN=([\w&.\[\]-]+)&&(x)$/$1/", "CN=a&[b]&&x") == "a&[b]"


def test_no_name_holds_up_a_pattern() -> None:
    rules = parse_principal_rules("RULE:^(a+)+$/$1/,DEFAULT")
    begin = time.monotonic()
    rules.name_of("a" * 60_000 + "b")
    assert (
        time.monotonic() - begin < 5
    )  # a regular expression that goes back would take longer than there is time
