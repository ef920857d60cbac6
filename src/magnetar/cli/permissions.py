"""`magnetar permissions`: Pulsar's permissions on namespaces, topics and subscriptions."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from magnetar.base.errors import ConfigError
from magnetar.base.names import InvalidTopicName, TopicName, check_named_entity
from magnetar.cli.output import Output, OutputOption, print_json, print_table
from magnetar.cli.reaching import with_permissions
from magnetar.client.permissions import PermissionsClient

app = typer.Typer(
    help="List, grant and revoke what roles may do in namespaces, to topics and with subscriptions.",
    rich_markup_mode=None,
)

ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")

Scope = Annotated[
    str,
    typer.Argument(metavar="NAMESPACE|TOPIC", help="tenant/namespace, or tenant/namespace/topic."),
]
Subscription = Annotated[
    str, typer.Option("--subscription", metavar="NAME", help="A subscription of the namespace's topics.")
]
Roles = Annotated[list[str], typer.Option("--role", metavar="ROLE", help="A role; can be given many times.")]


@app.callback()
def root() -> None:
    """List, grant and revoke what roles may do in namespaces, to topics and with subscriptions."""


@app.command("list")
@with_permissions
def list_permissions(
    permissions: PermissionsClient, scope: Scope, output: OutputOption = Output.TABLE
) -> None:
    """List what each role may do; for a topic, including what its namespace allows."""
    wanted = _scope(scope)
    roles = permissions.of(wanted)
    subscriptions = permissions.of_subscriptions(wanted) if isinstance(wanted, str) else {}
    if output is Output.JSON:
        print_json({"roles": roles} | ({"subscriptions": subscriptions} if isinstance(wanted, str) else {}))
        return
    rows = [("role", role, ", ".join(actions)) for role, actions in sorted(roles.items())]
    rows += [("subscription", name, ", ".join(sorted(had))) for name, had in sorted(subscriptions.items())]
    print_table(("", "name", "may, or is for"), rows)


@app.command()
@with_permissions
def grant(
    permissions: PermissionsClient,
    scope: Scope,
    role: Roles,
    actions: Annotated[
        str, typer.Option("--actions", metavar="A,B", help=f"{', '.join(ACTIONS)}; instead of what it may.")
    ] = "",
    subscription: Subscription = "",
) -> None:
    """Set what roles may do; or, with --subscription, restrict a subscription to these roles."""
    wanted = _scope(scope)
    if subscription:
        namespace = _namespace_of(wanted)
        if actions:
            raise ConfigError("a subscription is granted as a whole: leave --actions out")
        permissions.grant_subscription(namespace, subscription, role)
        return
    named = _actions(actions)
    for one in role:
        permissions.grant(wanted, one, named)


@app.command()
@with_permissions
def revoke(
    permissions: PermissionsClient, scope: Scope, role: Roles, subscription: Subscription = ""
) -> None:
    """Revoke all permissions of roles; or, with --subscription, those on the subscription."""
    wanted = _scope(scope)
    for one in role:
        if subscription:
            permissions.revoke_subscription(_namespace_of(wanted), subscription, one)
        else:
            permissions.revoke(wanted, one)


def _scope(text: str) -> str | TopicName:
    """A namespace, or a topic.  Raises ConfigError."""
    try:
        if "://" not in text and text.count("/") == 1:
            tenant, _, namespace = text.partition("/")
            check_named_entity("tenant", tenant)
            check_named_entity("namespace", namespace)
            return text
        if "/" in text:
            return TopicName.parse(text)
    except InvalidTopicName as error:
        raise ConfigError(str(error)) from None
    raise ConfigError(f"{text[:200]!r} is neither tenant/namespace nor tenant/namespace/topic")


def _namespace_of(scope: str | TopicName) -> str:
    if isinstance(scope, str):
        return scope
    raise ConfigError(f"subscriptions are granted in a namespace: say {scope.namespace_name}")


def _actions(text: str) -> Sequence[str]:
    named = list(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    unknown = [one for one in named if one not in ACTIONS]
    if unknown or not named:
        what = f"not {unknown[0][:50]!r}" if unknown else "and at least one"
        raise ConfigError(f"--actions has {', '.join(ACTIONS)}, {what}")
    return named
