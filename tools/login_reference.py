"""Write docs/reference/logins.md from what clients are expected to see: `python tools/login_reference.py`.

`make compat` holds tests/compat/logins/expected.txt to what they do see, and a test holds the page to that file.
"""

import runpy
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FILE = ROOT / "docs" / "reference" / "logins.md"
TABLE = ROOT / "tests" / "compat" / "logins" / "table.py"

INTRODUCTION = """\
# Clients and how they log in

<!-- Made by tools/login_reference.py from tests/compat/logins/expected.txt: change that. -->

These are tests of clients that other people wrote, each with every mechanism that it supports, on one server with
Kafka's and Pulsar's own settings (`tests/compat/logins/world.py` has them). With right credentials each client writes
a record and reads it again, in a topic that only its user may use; an admin client reads that topic's statistics. The
table shows what a program sees with wrong credentials: a wrong password, a token that has expired or that another key
has signed, a certificate of another authority, or, for TLS, a server whose authority the client does not trust.

`PLAIN-token` is a token as the password of PLAIN, as in KoP. kafka-python, aiokafka and pulsar-client retry until
their time-out, and then report only that. aiokafka does not notice that the server refused a token of OAUTHBEARER,
and finds no topics; with Apache Kafka it behaves the same.
"""
AT_APACHE = """\
## Otherwise with Apache Kafka and Apache Pulsar

The same clients with the same credentials see something else at Apache Kafka {kafka} and Apache Pulsar {pulsar}:
"""


def render() -> str:
    """The whole page."""
    table: dict[str, Any] = runpy.run_path(str(TABLE))
    rows = table["rows"](table["FILE"].read_text())
    let_in, absent = table["LET_IN"], table["ABSENT"]
    parts = [INTRODUCTION, "| client | mechanism | right | wrong |\n|---|---|---|---|\n"]
    other: list[str] = []
    for (client, mechanism), pair in groupby(rows, lambda one: (one.client, one.mechanism)):
        seen = {one.case: one for one in pair}
        parts.append(f"| {client} | {mechanism} | {seen['right'].here} | {seen['wrong'].here} |\n")
        other += [
            f"| {client} | {mechanism} | {one.case} | {one.at_apache} |\n"
            for one in seen.values()
            if one.at_apache not in (one.here, absent)
        ]
    assert all(one.here == let_in for one in rows if one.case == "right")
    text = "".join([parts[0], "\n", *parts[1:]])
    if other:
        versions = {"kafka": table["KAFKA"], "pulsar": table["PULSAR"]}
        text += (
            f"\n{AT_APACHE.format(**versions)}\n| client | mechanism | credentials | |\n|---|---|---|---|\n"
        )
        text += "".join(other)
    return text


if __name__ == "__main__":
    FILE.write_text(render())
