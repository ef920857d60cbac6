"""Write docs/reference/pulsar-admin.md from the routes that exist: `python tools/pulsar_admin_reference.py`.

Every route states what it does in its `summary`; the page lists them by file, and what is refused from the table of
`unserved.py`.  What pulsar-admin's commands come to is in `tests/compat/pulsar-admin/steps.txt`, to which `make compat`
holds a server.  A test holds the page to what this makes.
"""

import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

from magnetar.admin.routes import (
    cluster,
    connectors,
    functions,
    lookup,
    namespaces,
    permissions,
    policies,
    replicators,
    resource_groups,
    schemas,
    subscriptions,
    topic_state,
    topics,
    transactions,
    unserved,
)

ROOT = Path(__file__).parent.parent
FILE = ROOT / "docs" / "reference" / "pulsar-admin.md"
STEPS = ROOT / "tests" / "compat" / "pulsar_admin_steps.py"
SECTIONS: tuple[tuple[str, ModuleType], ...] = (
    ("Clusters, brokers, tenants", cluster),
    ("Namespaces", namespaces),
    ("Permissions", permissions),
    ("Policies", policies),
    ("Replicators", replicators),
    ("Resource groups", resource_groups),
    ("Topics", topics),
    ("State of topics", topic_state),
    ("Subscriptions", subscriptions),
    ("Schemas", schemas),
    ("Transactions", transactions),
    ("Functions", functions),
    ("Connectors", connectors),
    ("Lookup", lookup),
)

INTRODUCTION = """\
# Pulsar's admin API

<!-- Made by tools/pulsar_admin_reference.py from src/magnetar/admin/routes: change those. -->

This page lists what `pulsar-admin`, and clients with an `http://` service URL, can use on the HTTP port. Paths,
statuses and reasons (`{"reason": "..."}`) are those of Apache Pulsar 4.0.8. `D` is `persistent` or `non-persistent`,
`C` is `sink`, `sinks`, `source` or `sources`. A topic's path may end in `-partition-N`.

These things are different on purpose:

- **A setting that the server stores has an effect.** If a policy would have no effect here, the server refuses to set
  it (501, with a sentence). The policy reads as not set, and removing it changes nothing.
- **Backlogs are counted in messages**, not in entries: a subscription's backlog is the lag of the Kafka group of its
  name. `skip` counts messages, too; `position/{n}` (peek) counts entries, as in Pulsar.
- **Kafka groups are subscriptions**: they are listed and have stats, and you can move and drop them while they have no
  members. They hold no data. TTL, quotas and expiry of subscriptions do not apply to them.
- **Retention** is seven days unless a policy or a topic's Kafka settings say otherwise.
- **Authorization** is off until `authorizationEnabled=true` or Kafka's `authorizer.class.name` turns it on
  ([who may do what](authorization.md)). In any case the server refuses requests of other sites' pages in a browser
  (403), and a body that is not sent as JSON (415: `curl` needs `-H 'Content-Type: application/json'`).
- **The server deletes inactive topics** only if a policy says so, and never with messages in them.
- **Topic compaction** removes a key whose last message has no payload, as later versions do (4.0.8 keeps such a
  message outside of a batch). It leaves chunks and encrypted batches alone. The server forgets the result of the last
  compaction when it stops.
- **Transactions**: topics have their full names; a topic's figures count the transactions of both protocols. A
  cumulative acknowledgement counts as pending, like one of single messages (4.0.8 leaves it out).
- **Sinks and sources** are pipelines ([connectors](connectors.md)): built-in ones only, with one instance.
- A consumer with a schema may read a topic that has data but no schema, if no Pulsar producer without one is connected.
"""


REFUSED = """\
Pulsar's admin API also has these. The server answers 501 with one sentence, and never accepts and ignores a request.
"""


COMMANDS = """\
## Command by command

These are all commands of pulsar-admin {version}, as `make compat ARGS=pulsar-admin` runs them on a server without
authorization. A command counts as working if at least one form of it works. The server refuses with a reason what it
does not serve. Two kinds are not in the table: `localrun`, which runs on the client's machine, and the `set-`, `get-`
and `remove-dispatcher-pause-on-ack-state-persistent` of `topicPolicies`, which do not wait for their refusal.
"""


def commands() -> str:
    """What each command of pulsar-admin comes to."""
    table: dict[str, Any] = runpy.run_path(str(STEPS))
    groups: dict[str, dict[str, list[str]]] = {}
    for group, command, reason in table["outcomes"](table["steps"](table["FILE"].read_text())):
        groups.setdefault(group, {}).setdefault(reason, []).append(f"`{command}`")
    rows = ["| group | commands | |", "|---|---|---|"]
    for group, by_reason in sorted(groups.items()):
        for reason, names in sorted(by_reason.items()):
            rows.append(f"| {group} | {', '.join(names)} | {reason or 'works'} |")
    return COMMANDS.format(version=table["VERSION"]) + "\n" + "\n".join(rows) + "\n"


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION, commands()]
    for title, module in SECTIONS:
        rows = ["| method | path | does |", "|---|---|---|"]
        for route in module.router.routes:
            path = route.path.replace("{domain:domain}", "D").replace("{connector:connector}", "C")
            path = path.replace(":path}", "}")
            rows += [f"| {method} | `{path}` | {route.summary} |" for method in sorted(route.methods or ())]
        parts += [f"## {title}\n", "\n".join(rows) + "\n"]
    refused = ["| a path with | is about |", "|---|---|"]
    refused += [f"| `{word}` | {what} |" for word, what in sorted(unserved.FEATURES.items())]
    parts += ["## Not served\n", REFUSED, "\n".join(refused) + "\n"]
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.write_text(render())
