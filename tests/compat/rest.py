"""Pulsar's REST, as far as set-ups of suites call it."""

import json
import time
import urllib.error
import urllib.request

from fetch import SetupFailed

REQUEST_TIMEOUT_S = 30.0
CLUSTER = "standalone"
CLUSTER_TIMEOUT_S = 60.0
_THERE = 409


def change(http: str, method: str, path: str, body: object = None, token: str = "") -> None:
    """Make or set something; what is there already stays as it is.  Raises SetupFailed."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{http}/admin/v2/{path}", data, method=method)
    request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S):
            pass
    except urllib.error.HTTPError as error:
        if error.code != _THERE:
            said = f"{method} {path} was answered with {error.code}: {error.read()[:200]!r}"
            raise SetupFailed(said) from None


def wait_for_cluster(http: str, token: str) -> None:
    """Apache Pulsar says that it is ready before its cluster is there.  Raises SetupFailed."""
    request = urllib.request.Request(
        f"{http}/admin/v2/clusters", headers={"Authorization": f"Bearer {token}"}
    )
    until = time.monotonic() + CLUSTER_TIMEOUT_S
    while time.monotonic() < until:
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:
            if CLUSTER in json.load(answer):
                return
        time.sleep(0.1)
    raise SetupFailed("the cluster was not there in time")


def make_namespace(
    http: str, name: str, roles: dict[str, list[str]], token: str = "", admins: tuple[str, ...] = ()
) -> None:
    """A namespace, with its tenant of these `admins`, where `roles` may do what they say.  Raises SetupFailed."""
    tenant = {"adminRoles": list(admins), "allowedClusters": [CLUSTER]}
    for method in ("PUT", "POST"):  # it is made, or has been and is changed
        change(http, method, f"tenants/{name.partition('/')[0]}", tenant, token)
    change(http, "PUT", f"namespaces/{name}", {"replication_clusters": [CLUSTER]}, token)
    for role, actions in roles.items():
        change(http, "POST", f"namespaces/{name}/permissions/{role}", actions, token)
