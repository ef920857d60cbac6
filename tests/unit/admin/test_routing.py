"""What functions get of a request's address, and which methods a path answers."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from magnetar.admin import answers
from magnetar.admin.json_bodies import JsonReader
from magnetar.admin.routing import Router, document, whole_number


def made() -> Starlette:
    router = Router()

    @router.get("/rows", summary="All rows, or those of ?topic")
    async def rows(topic: str, newest: int | None = None) -> Response:
        return JSONResponse([topic, newest])

    @router.put("/rows/{number}/{name:path}", summary="One row")
    async def row(request: Request, number: int, name: str = "") -> Response:
        return JSONResponse([request.method, number, name])

    app = Starlette(routes=router.routes)
    answers.install(app, JsonReader(lambda: 0.0))
    return app


def ask(method: str, path: str) -> tuple[int, Any]:
    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(made()), base_url="http://test") as client:
            return await client.request(method, path)

    answer = asyncio.run(main())
    return answer.status_code, json.loads(answer.content or b"null")


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/rows?topic=t", 200, ["t", None]),
        ("GET", "/rows?topic=&newest=7", 200, ["", 7]),
        ("GET", "/rows?topic=a&topic=b", 200, ["b", None]),
        ("GET", "/rows", 400, {"reason": "topic: Field required"}),
        ("PUT", "/rows/5/a/b", 200, ["PUT", 5, "a/b"]),
        ("POST", "/rows", 405, {"reason": "Method Not Allowed"}),
        ("GET", "/nothing", 404, {"reason": "Not Found"}),
        ("GET", "/rows/?topic=t", 307, None),
    ],
)
def test_a_function_gets_what_its_parameters_name(method: str, path: str, status: int, said: Any) -> None:
    assert ask(method, path) == (status, said)


def test_head_is_not_served_where_only_get_is() -> None:
    async def main() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(made()), base_url="http://test") as client:
            return (await client.head("/rows?topic=t")).status_code

    assert asyncio.run(main()) == 405


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("-7", -7), ("+7", 7), (" 12\t", 12), ("1_000", 1000), ("3.00", 3)]
)
def test_whole_numbers(text: str, number: int) -> None:
    assert whole_number("n", text) == number


@pytest.mark.parametrize(
    "text", ["", " ", "a", "1.", "1.5", "0x1", "1__0", "_1", "--1", "1e3", "\u0661", "9" * 5000]
)
def test_what_is_no_whole_number_is_refused_by_name(text: str) -> None:
    with pytest.raises(answers.Refused, match=r"^n: ") as refused:
        whole_number("n", text)
    assert refused.value.status == 400


def test_the_document_names_every_parameter() -> None:
    paths = document("Rows", "1", made().routes)["paths"]
    assert [
        (one["name"], one["in"], one["required"], one["schema"]["type"])
        for path in paths.values()
        for operation in path.values()
        for one in operation["parameters"]
    ] == [
        ("topic", "query", True, "string"),
        ("newest", "query", False, "integer"),
        ("number", "path", True, "integer"),
        ("name", "path", True, "string"),
    ]


def test_a_path_has_one_function_for_each_method() -> None:
    router = Router()
    router.get("/rows", summary="Rows")(answer)
    router.put("/rows", summary="Set rows")(answer)
    with pytest.raises(AssertionError, match="GET /rows has two functions"):
        router.get("/rows", summary="Rows again")(answer)


async def answer() -> Response:
    return Response()


def test_a_path_is_compiled_for_the_first_request_that_begins_as_it_does() -> None:
    """A start makes hundreds of routes: compiling them was a tenth of it."""
    router = Router()

    @router.get("/rows/{number}", summary="One row")
    async def row(number: int) -> Response:
        return JSONResponse(number)

    @router.get("/topics/{name}", summary="One topic")
    async def topic(name: str) -> Response:
        return JSONResponse(name)

    def compiled() -> list[bool]:
        return [hasattr(route, "path_regex") for route in router.routes]

    async def main() -> int:
        transport = httpx.ASGITransport(Starlette(routes=router.routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return (await client.get("/topics/t")).status_code

    assert compiled() == [False, False]
    assert asyncio.run(main()) == 200
    assert compiled() == [False, True]
