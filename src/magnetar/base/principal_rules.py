r"""`ssl.principal.mapping.rules`: what a client is called whose certificate has a certain name.

    RULE:^CN=([A-Za-z0-9.-]+),OU=People.*$/$1/L,DEFAULT

Rules are tried in order, on the name as `base/distinguished_name.py` has it.  The first rule whose pattern fits the
whole name gives the client's name; DEFAULT gives the name as it is.  `L` and `U` behind the last slash make it lower or
upper case, a slash inside of a rule is written `\/`.  The replacement may have what Java's `replaceAll` takes: `$1`,
`${name}`, and a backslash before a character that shall stand for itself.  As in Java, each place that fits is
replaced.  For a pattern that also fits nothing (`.*`), that is more than one place.

Names come from certificates that others have made, so patterns are run by RE2, in time linear in the name.  What only
Java knows, or what RE2 reads in another way than Java, is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

DEFAULT_RULES: Final = "DEFAULT"
_RULE: Final = re.compile(
    r"(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))?"
    r"\s*(?:,\s*|$)"
)
_REFERENCE: Final = re.compile(r"(?P<number>[0-9]+)|\{(?P<name>[a-zA-Z][a-zA-Z0-9]*)\}")
_SHOWN_CHARS: Final = 200
# By Java's reading `&&` in a class takes what two classes have in common and `[` begins another class; `\0` is a number
# in octal digits.  `\C` and the flag U mean something else to RE2, or nothing to Java; `\Q` would hide all of these.
# The flag i means the letters of ASCII to Java and all of Unicode's to RE2, where the Kelvin sign is a k: one name
# would be taken for another.
_FLAGS: Final = re.compile(r"\(\?[a-zA-Z]*[Ui]")


@dataclass(frozen=True, slots=True)
class _Rule:
    """`pattern` is RE2's, None for DEFAULT; `replacement` has texts, and groups by number."""

    pattern: Any = None
    replacement: tuple[str | int, ...] = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        parts: list[str] = []
        done = position = 0
        while position <= len(name):
            found = self.pattern.search(name, position)
            if found is None:
                break
            begin, end = found.span()
            parts.append(name[done:begin])
            parts += [one if isinstance(one, str) else found.group(one) or "" for one in self.replacement]
            done = end
            position = end if end > begin else end + 1
        parts.append(name[done:])
        text = "".join(parts)
        if self.case == "L":
            return text.lower()
        return text.upper() if self.case == "U" else text


class PrincipalRules:
    """See the module's text; made by `parse_principal_rules`."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = rules

    def name_of(self, distinguished_name: str) -> str | None:
        """What a client is called; None if no rule fits."""
        names = (rule.apply(distinguished_name) for rule in self._rules)
        return next((name for name in names if name is not None), None)


def parse_principal_rules(text: str) -> PrincipalRules:
    """Raises ValueError: these are no rules, or they cannot be used here; the words go behind the name of the key."""
    rules: list[_Rule] = []
    rest = text.strip()
    while rest:
        found = _RULE.match(rest)
        if found is None:
            raise ValueError(
                f"has no rule at {rest[:_SHOWN_CHARS]!r}: there are RULE:pattern/replacement/, with L or U behind it,"
                " and DEFAULT"
            )
        if found["default"]:
            rules.append(_Rule())
        elif found["pattern"] is not None:
            rules.append(_rule(found["pattern"], found["replacement"], found["case"]))
        rest = rest[found.end() :]
    if not rules:
        raise ValueError("has no rule: no client's certificate would give it a name")
    return PrincipalRules(rules)


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    import re2  # 10 ms that a start need not spend

    shown = f"{pattern[:_SHOWN_CHARS]!r}"
    if _reads_otherwise(pattern):
        raise ValueError(
            f"has the pattern {shown}, which RE2 reads in another way than Java: write it without classes in classes,"
            " \\Q, \\0, \\C and the flags U and i"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ValueError(f"has the pattern {shown}, which RE2 cannot run: {reason}") from None
    return _Rule(compiled, _replacement(replacement, compiled.groups, compiled.groupindex), case)


def _reads_otherwise(pattern: str) -> bool:
    if _FLAGS.search(pattern):
        return True
    is_in_class = False
    position = 0
    while position < len(pattern):
        char, following = pattern[position], pattern[position + 1 : position + 2]
        if char == "\\":
            if following and following in "0CQE":
                return True
            position += 1
        elif is_in_class and (char == "[" or char == following == "&"):
            return True
        elif char == "[":
            is_in_class = True
            # A bracket that closes at once stands for itself in RE2, and is a fault in Java.
            if following == "]" or pattern.startswith("^]", position + 1):
                return True
        elif char == "]":
            is_in_class = False
        position += 1
    return False


def _replacement(text: str, groups: int, names: dict[str, int]) -> tuple[str | int, ...]:
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\":  # the grammar has one more character behind it
            parts.append(text[position])
            position += 1
        elif char == "$":
            found = _REFERENCE.match(text, position)
            if found is None or (found["name"] and found["name"] not in names):
                raise ValueError(f"has the replacement {text[:_SHOWN_CHARS]!r} with a $ that names no group")
            if found["name"]:
                parts.append(names[found["name"]])
                position = found.end()
            else:
                group, position = _group(text, position, found.end(), groups)
                parts.append(group)
        else:
            parts.append(char)
    return tuple(parts)


def _group(text: str, position: int, end: int, groups: int) -> tuple[str | int, int]:
    """The group that digits name, as many of them as there is a group for; as in Kafka they are text where none is."""
    number = int(text[position])
    if number > groups:
        if not groups:
            raise ValueError(f"has the replacement {text[:_SHOWN_CHARS]!r}, and its pattern has no groups")
        return "$", position
    position += 1
    while position < end and number * 10 + int(text[position]) <= groups:
        number = number * 10 + int(text[position])
        position += 1
    return number, position
