import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.properties import FILE_BYTES_MAX, parse_properties


# What `java.util.Properties.load` makes of the same text.
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("a=b", [("a", "b", 1)]),
        ("a = b ", [("a", "b ", 1)]),
        ("a:b", [("a", "b", 1)]),
        ("a b c", [("a", "b c", 1)]),
        ("a\tb", [("a", "b", 1)]),
        ("a", [("a", "", 1)]),
        ("a=", [("a", "", 1)]),
        ("a == b", [("a", "= b", 1)]),
        ("  a=b\r\nc=d\re=f", [("a", "b", 1), ("c", "d", 2), ("e", "f", 3)]),
        ("# a=b\n! c=d\n \t# e\n\n   \nf=g", [("f", "g", 6)]),
        ("a=b # not a comment", [("a", "b # not a comment", 1)]),
        ("a=b,\\\n   c,\\\n\td\ne=f", [("a", "b,c,d", 1), ("e", "f", 4)]),
        ("a=b\\\n# not a comment", [("a", "b# not a comment", 1)]),
        ("a=b\\\\\nc=d", [("a", "b\\", 1), ("c", "d", 2)]),
        ("a=b\\", [("a", "b", 1)]),
        ("a=b\\\n", [("a", "b", 1)]),
        (r"a\=b\:c\ d = e", [("a=b:c d", "e", 1)]),
        (r"a=\t\n\r\f\q\\", [("a", "\t\n\r\fq\\", 1)]),
        (r"a=\u00e9\u0041", [("a", "éA", 1)]),
        (r"a=\ud83d\ude00", [("a", "\U0001f600", 1)]),
        ("a=é", [("a", "é", 1)]),
        ("\ufeffa=b", [("a", "b", 1)]),
        ("a=1\na=2", [("a", "1", 1), ("a", "2", 2)]),
        ("listeners=INTERNAL://:9092,EXTERNAL://h:1", [("listeners", "INTERNAL://:9092,EXTERNAL://h:1", 1)]),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, found: list[tuple[str, str, int]]) -> None:
    assert [(one.key, one.value, one.line) for one in parse_properties(text.encode(), "f")] == found


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12g4", r"a=\u", r"a=\ud83d", r"a=\u+123"])
def test_a_malformed_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"server.properties line 3: "):
        parse_properties(f"x=y\n\n{text}".encode(), "server.properties")


def test_what_is_no_text_or_too_large_is_refused() -> None:
    with pytest.raises(ConfigError, match="not UTF-8"):
        parse_properties(b"a=\xff", "f")
    assert len(parse_properties(b"#" * FILE_BYTES_MAX, "f")) == 0
    with pytest.raises(ConfigError, match="larger"):
        parse_properties(b"#" * (FILE_BYTES_MAX + 1), "f")
