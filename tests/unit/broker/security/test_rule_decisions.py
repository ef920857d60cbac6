"""Decisions by rules against an evaluation that is slow and plain: each rule is looked at, one after the other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.security.decisions import Decisions
from magnetar.broker.security.model import (
    CLUSTER,
    Caller,
    Operation,
    Principal,
    Resource,
    ResourceType,
    group_resource,
    namespace_resource,
    pipeline_resource,
    subscription_resource,
    tenant_resource,
    topic_resource,
)
from magnetar.broker.security.rule import Pattern, Rule, Target
from tests.examples import at_least

HOME = "public/default"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.SUBSCRIPTION
FULL = "persistent://public/default/"
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL


class Tenants:
    def __init__(self) -> None:
        self.admins: dict[str, list[str]] = {}
        self.own_names: set[str] = set()

    def admin_roles(self, tenant: str) -> list[str]:
        return self.admins.get(tenant, [])

    def is_admin(self, role: str) -> bool:
        return any(role in roles for roles in self.admins.values())

    def wants_own_names(self, namespace: str) -> bool:
        return namespace in self.own_names


def book(*rules: Rule, tenants: Tenants | None = None, open_: bool = False, wild: bool = False) -> Decisions:
    made = Decisions(["User:root"], HOME, tenants or Tenants(), open_without_rules=open_, with_wildcards=wild)
    made.change(rules)
    return made


def user(name: str, host: str = "10.0.0.1") -> Caller:
    return Caller(Principal("User", name), host)


def literal(name: str) -> Target:
    return Target(TOPIC, Pattern.LITERAL, FULL + name)


def prefixed(name: str) -> Target:
    return Target(TOPIC, Pattern.PREFIXED, FULL + name)


def every(namespace: str = HOME) -> Target:
    return Target(TOPIC, Pattern.EVERY, scope=namespace)


def test_what_is_found_for_a_tenants_topics_shares_its_administrators() -> None:
    """They may be a thousand with long names, and 65,536 topics are kept that need not exist."""
    tenants = Tenants()
    tenants.admins["public"] = [f"boss-{number}" for number in range(1000)]
    decisions = book(tenants=tenants)
    assert all(decisions.allows(user("boss-7"), READ, topic_resource(f"{FULL}{n}")) for n in range(100))
    assert len({id(found.admins) for found in decisions._topics.values()}) == 1
    tenants.admins["public"] = []
    decisions.forget()
    assert not decisions.allows(user("boss-7"), READ, topic_resource(f"{FULL}0"))


# --- the oracle ------------------------------------------------------------------------------------------------------

_IMPLIED = {
    DESCRIBE: {READ, WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
_NAMES = ["a", "ab", "abc", "b"]
_TARGETS = st.one_of(
    st.sampled_from([literal(name) for name in _NAMES]),
    st.sampled_from([prefixed(name) for name in ("a", "ab", "abcd", "b*")]),
    st.sampled_from([every(), every("other/default"), Target(TOPIC, Pattern.PREFIXED, "persistent://")]),
)
_OPERATIONS = [READ, WRITE, DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS, ALL]
_RULES = st.builds(
    Rule,
    principal=st.sampled_from(["User:ann", "User:bob", "User:*", "Group:ann", "User:a*"]),
    operation=st.sampled_from(_OPERATIONS),
    target=_TARGETS,
    allow=st.booleans(),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    is_role=st.booleans(),
)


def about(target: Target, full: str) -> bool:
    if target.pattern is Pattern.LITERAL:
        return target.name == full
    if target.pattern is Pattern.PREFIXED:
        return full.startswith(target.name)
    return full.startswith((f"persistent://{target.scope}/", f"non-persistent://{target.scope}/"))


def concerns(rule: Rule, caller: Caller, wild: bool) -> bool:
    name = rule.principal.removeprefix("User:")
    is_glob = wild and rule.is_role and name.endswith("*")
    same = rule.principal == str(caller.principal)
    if is_glob:
        same = caller.principal.name.startswith(name[:-1])
    return (same or rule.principal == "User:*") and rule.host in ("*", caller.host)


def slowly(
    rules: list[Rule], caller: Caller, operation: Operation, full: str, open_: bool, wild: bool
) -> bool:
    mine = [one for one in rules if about(one.target, full)]
    if not mine:
        return open_
    mine = [one for one in mine if concerns(one, caller, wild)]
    if any(not one.allow and one.operation in (operation, ALL) for one in mine):
        return False
    enough = {operation, ALL} | _IMPLIED.get(operation, set())
    return any(one.allow and one.operation in enough for one in mine)


@settings(max_examples=at_least(300))
@given(
    rules=st.lists(_RULES, max_size=12),
    removed=st.lists(_RULES, max_size=6),
    open_=st.booleans(),
    wild=st.booleans(),
)
def test_topics_are_decided_as_by_looking_at_each_rule(
    rules: list[Rule], removed: list[Rule], open_: bool, wild: bool
) -> None:
    made = book(*rules, *removed, open_=open_, wild=wild)
    for caller in (user("ann"), user("bob", "10.0.0.2")):
        for name in _NAMES:  # what is kept of this must not outlive the change
            made.allows(caller, READ, topic_resource(FULL + name))
    made.change((), removed)
    left = [one for one in dict.fromkeys(rules) if one not in removed]
    assert set(made) == set(left)
    for caller in (user("ann"), user("bob", "10.0.0.2"), user("carl")):
        for full in [FULL + name for name in _NAMES] + ["persistent://other/default/a", "non-" + FULL + "a"]:
            for operation in _OPERATIONS[:-1]:
                expected = slowly(left, caller, operation, full, open_, wild)
                asked = made.allows(caller, operation, topic_resource(full))
                assert asked is expected, (caller, operation, full)


@settings(max_examples=at_least(200))
@given(rules=st.lists(_RULES, max_size=10))
def test_any_topic_means_one_whose_rule_is_not_taken_back(rules: list[Rule]) -> None:
    made = book(*rules)
    names = [FULL + name for name in [*_NAMES, "abcd", "b*", "zz"]] + ["persistent://other/default/a"]
    names += ["non-persistent://other/default/a", "persistent://third/one/x", "non-" + FULL + "x"]
    for caller in (user("ann"), user("bob", "10.0.0.2")):
        if made.allows_any(caller, WRITE, TOPIC):
            continue
        # Whoever may write to a topic is found to; the reverse holds where single names are not denied one by one.
        assert not any(made.allows(caller, WRITE, topic_resource(name)) for name in names)


# --- by example ------------------------------------------------------------------------------------------------------


def test_super_users_are_above_denials_and_no_other_kind_of_principal_is() -> None:
    deny = Rule("User:*", ALL, every(), allow=False)
    made = book(deny)
    assert made.allows(user("root"), WRITE, topic_resource(FULL + "a"))
    assert not made.allows(Caller(Principal("Server", "root")), READ, topic_resource(FULL + "a"))
    assert made.allows_any(user("root"), WRITE, TOPIC)
    assert not made.allows(user("Root"), WRITE, topic_resource(FULL + "a"))
    assert not made.allows(Caller(Principal("Group", "root")), WRITE, topic_resource(FULL + "a"))


def test_a_group_is_at_home_and_a_subscription_in_its_topic() -> None:
    t = FULL + "t"
    of_group = Rule("User:ann", READ, Target(GROUP, Pattern.LITERAL, "g"))
    made = book(of_group, Rule("User:ann", READ, literal("t")))
    assert made.allows(user("ann"), READ, group_resource("g"))
    assert made.allows(user("ann"), READ, subscription_resource(t, "g"))
    assert not made.allows(user("ann"), READ, subscription_resource(t, "h"))
    assert not made.allows(user("ann"), READ, subscription_resource(FULL + "u", "g"))
    home = Rule("User:bob", READ, Target(GROUP, Pattern.EVERY, scope=HOME))
    away = Rule("User:bob", READ, Target(GROUP, Pattern.EVERY, scope="other/default"))
    assert book(home).allows(user("bob"), READ, group_resource("any"))
    assert not book(away).allows(user("bob"), READ, group_resource("any"))


def test_a_subscription_that_is_granted_is_for_its_roles_only() -> None:
    t = FULL + "t"
    consume = [
        rule
        for name in ("ann", "bob")
        for rule in (
            Rule(f"User:{name}", READ, every()),
            Rule(f"User:{name}", READ, Target(GROUP, Pattern.EVERY, scope=HOME)),
        )
    ]
    own = Rule("User:ann", READ, Target(GROUP, Pattern.LITERAL, "s", HOME))
    made = book(*consume, own)
    for resource in (subscription_resource(t, "s"), group_resource("s")):
        assert made.allows(user("ann"), READ, resource)
        assert not made.allows(user("bob"), READ, resource)
    assert made.allows(user("bob"), READ, subscription_resource(t, "other"))
    assert book(own).allows(user("ann"), READ, subscription_resource(t, "s")) is False  # without the topic


def test_names_of_subscriptions_begin_with_the_role_where_that_is_asked_for() -> None:
    tenants = Tenants()
    tenants.own_names, tenants.admins = {HOME}, {"public": ["boss"]}
    rules = (
        Rule("User:*", READ, every()),
        Rule("User:*", READ, Target(GROUP, Pattern.EVERY, scope=HOME)),
    )
    made = book(*rules, tenants=tenants)
    assert made.allows(user("ann"), READ, subscription_resource(FULL + "t", "ann-1"))
    assert not made.allows(user("ann"), READ, subscription_resource(FULL + "t", "bob-1"))
    assert not made.allows(user("ann"), READ, group_resource("bob-1"))
    assert made.allows(user("boss"), READ, subscription_resource(FULL + "t", "bob-1"))
    assert made.allows(user("root"), READ, subscription_resource(FULL + "t", "bob-1"))
    tenants.own_names.clear()
    made.forget()
    assert made.allows(user("ann"), READ, subscription_resource(FULL + "t", "bob-1"))


def test_an_administrator_has_its_own_tenant_and_no_other() -> None:
    tenants = Tenants()
    tenants.admins = {"acme": ["boss"]}
    made = book(tenants=tenants)
    boss = user("boss")
    for mine, theirs in (
        (tenant_resource("acme"), tenant_resource("acme2")),
        (namespace_resource("acme/a"), namespace_resource("acme2/a")),
        (topic_resource("persistent://acme/a/t"), topic_resource("persistent://acme2/a/t")),
        (topic_resource("non-persistent://acme/a/t"), topic_resource(FULL + "acme")),
        (subscription_resource("persistent://acme/a/t", "s"), group_resource("s")),
    ):
        assert made.allows(boss, Operation.DELETE, mine) or mine.type is GROUP
        assert made.allows(boss, READ, mine)
        assert not made.allows(boss, READ, theirs)
    assert not made.allows(boss, Operation.ALTER, namespace_resource("acme/a"))  # an unload
    assert not made.allows(boss, DESCRIBE, CLUSTER)
    assert not made.allows(boss, Operation.CREATE, pipeline_resource("p"))
    assert made.allows_any(boss, WRITE, TOPIC)
    denied = book(
        Rule("User:boss", WRITE, Target(TOPIC, Pattern.LITERAL, "persistent://acme/a/t"), allow=False),
        tenants=tenants,
    )
    assert not denied.allows(boss, WRITE, topic_resource("persistent://acme/a/t"))
    tenants.admins = {}
    made.forget()
    assert not made.allows(boss, READ, topic_resource("persistent://acme/a/t"))


@pytest.mark.parametrize("target", [every(), Target(TOPIC, Pattern.PREFIXED, "persistent://public/")])
def test_a_namespace_is_described_by_whom_all_its_topics_are_described_by(target: Target) -> None:
    made = book(Rule("User:ann", READ, target), Rule("User:bob", READ, prefixed("o")))
    assert made.allows(user("ann"), DESCRIBE, namespace_resource(HOME))
    assert not made.allows(user("bob"), DESCRIBE, namespace_resource(HOME))
    assert not made.allows(user("ann"), DESCRIBE, namespace_resource("public2/default"))


def test_a_pipeline_takes_what_the_cluster_takes() -> None:
    cluster = Target(ResourceType.CLUSTER, Pattern.LITERAL, CLUSTER.name)
    made = book(Rule("User:ann", DESCRIBE, cluster), Rule("User:bob", Operation.ALTER, cluster))
    assert made.allows(user("ann"), DESCRIBE, pipeline_resource("p"))
    assert not made.allows(user("ann"), Operation.CREATE, pipeline_resource("p"))
    assert made.allows(user("bob"), Operation.CREATE, pipeline_resource("p"))


def test_a_star_in_a_role_is_one_where_the_server_says_so() -> None:
    for role, other in (("app-*", "app-1"), ("*-job", "x-job"), ("*", "x")):
        rule = Rule(f"User:{role}", READ, every(), is_role=True)
        assert book(rule, wild=True).allows(user(other), READ, topic_resource(FULL + "t"))
        assert not book(rule, wild=True).allows(
            Caller(Principal("Group", other)), READ, topic_resource(FULL + "t")
        )
        by_kafka = Rule(f"User:{role}", READ, every())
        assert book(by_kafka, wild=True).allows(user(other), READ, topic_resource(FULL + "t")) is (
            role == "*"
        )
    assert not book(Rule("User:app-*", READ, every(), is_role=True)).allows(
        user("app-1"), READ, topic_resource(FULL + "t")
    )


def test_every_right_that_is_asked_for_by_a_type_has_a_rule_that_gives_it() -> None:
    """A new type of resource has to be decided by something."""
    tenants = Tenants()
    tenants.admins = {"public": ["boss"]}
    resources = {
        ResourceType.TENANT: tenant_resource("public"),
        ResourceType.NAMESPACE: namespace_resource(HOME),
        ResourceType.PIPELINE: pipeline_resource("p"),
    }
    for kind in ResourceType:
        pattern = Pattern.LITERAL if kind is ResourceType.CLUSTER else Pattern.PREFIXED
        resource = resources.get(kind, Resource(kind, FULL + "t" if kind is TOPIC else CLUSTER.name))
        target = Target(kind, pattern, resource.name)
        if kind is ResourceType.PIPELINE:
            target = Target(ResourceType.CLUSTER, Pattern.LITERAL, CLUSTER.name)
        made = book(Rule("User:boss", ALL, target), tenants=tenants)
        assert made.allows(user("boss"), Operation.DELETE, resource), kind
        assert not made.allows(user("ann"), Operation.DELETE, resource), kind


# --- proxies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["alice", "proxy"])
def test_proxy_and_its_client_both_need_the_right(first: str) -> None:
    """What was found for one of them alone decides nothing for both."""
    rule = {name: Rule(f"User:{name}", WRITE, literal("a")) for name in ("alice", "proxy")}
    through = Caller(Principal("User", "alice"), "10.0.0.1", proxy=user("proxy"))
    topic = topic_resource(FULL + "a")
    decisions = book(rule[first])
    for _ in range(2):
        assert decisions.allows(user(first), WRITE, topic)
        assert not decisions.allows(through, WRITE, topic)
        assert not decisions.allows_any(through, WRITE, TOPIC)
    decisions.change(rule.values())
    assert decisions.allows(through, WRITE, topic)
    assert decisions.allows_any(through, WRITE, TOPIC)


def test_super_user_behind_a_proxy_may_do_what_the_proxy_may() -> None:
    decisions = book(Rule("User:proxy", WRITE, literal("a")))
    through = Caller(Principal("User", "root"), "10.0.0.1", proxy=user("proxy"))
    assert decisions.allows(through, WRITE, topic_resource(FULL + "a"))
    assert not decisions.allows(through, READ, topic_resource(FULL + "a"))
    assert not decisions.allows(Caller(user("alice").principal, proxy=user("root")), READ, CLUSTER)


def test_hosts_are_told_apart_while_a_rule_names_one() -> None:
    anywhere = Rule("User:ann", READ, literal("t"))
    somewhere = anywhere._replace(host="10.0.0.1")
    made = book(anywhere)
    assert not made.tells_hosts_apart
    for _ in range(2):
        made.change([somewhere])
        assert made.tells_hosts_apart
    for _ in range(2):
        made.change((), [somewhere])
        assert not made.tells_hosts_apart
    made.change([somewhere])
    assert made.tells_hosts_apart
