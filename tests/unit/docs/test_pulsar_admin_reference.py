import runpy
from pathlib import Path

from magnetar.admin.app import ROUTERS
from magnetar.admin.routing import Router

TOOL = Path(__file__).parents[3] / "tools" / "pulsar_admin_reference.py"


def test_the_page_of_the_admin_api_is_what_the_routes_say() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["FILE"].read_text() == tool["render"](), (
        f"run `make generate` ({TOOL.name}) and commit the page"
    )


def test_every_served_route_is_on_the_page() -> None:
    tool = runpy.run_path(str(TOOL))
    listed = {id(module.router) for _, module in tool["SECTIONS"]}
    # The last router is the one that refuses what no other serves; Magnetar's own paths are not Pulsar's.
    assert listed == {id(router) for router in ROUTERS[:-1] if not is_own(router)}


def is_own(router: Router) -> bool:
    paths = [route.path for route in router.routes]
    return all(path.startswith("/magnetar/") for path in paths)
