"""Routes of the admin API: a path, its methods, what it does in one sentence, and the function that answers.

A function names what it wants by its parameters: `request`, words of the path, and (those that the path has not) of the
query.  They are texts, or whole numbers where the annotation says so; what is not one, or is missing, is answered 400.
A path answers the methods that it names and no other: HEAD is 405 where only GET is served.

`document` describes all routes as OpenAPI does, for /openapi.json.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute

from magnetar.admin.answers import Refused

Handler = Callable[..., Awaitable[Response]]
_Function = TypeVar("_Function", bound=Handler)

_REQUEST: Final = "request"
_REQUIRED: Final = inspect.Parameter.empty
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?")


class Parameter(NamedTuple):
    """What a function wants of a request's address, and what it gets when that is not there."""

    name: str
    in_path: bool
    is_number: bool
    default: Any

    def read(self, request: Request) -> Any:
        """Its value; 400 when there is none, or when it must be a number and is not."""
        values = request.path_params if self.in_path else request.query_params
        text = values.get(self.name)
        if text is None:
            if self.default is _REQUIRED:
                raise Refused(400, f"{self.name}: Field required")
            return self.default
        return whole_number(self.name, text) if self.is_number else text


class Route(StarletteRoute):
    """One path, the methods that it answers, and what the reference says about it."""

    def __init__(
        self, path: str, handler: Handler, methods: Sequence[str], summary: str, in_schema: bool = True
    ) -> None:
        self.summary = summary
        self.handler = handler
        self.parameters: tuple[Parameter, ...] = ()
        self._wants_request = False
        super().__init__(
            path, self._answer, methods=methods, name=handler.__name__, include_in_schema=in_schema
        )
        assert self.methods is not None
        self.methods.intersection_update(methods)  # without the HEAD that Starlette adds to GET
        wanted = inspect.signature(handler).parameters
        self._wants_request = _REQUEST in wanted
        self.parameters = tuple(
            Parameter(
                one.name, one.name in self.param_convertors, one.annotation in (int, int | None), one.default
            )
            for one in wanted.values()
            if one.name != _REQUEST
        )

    async def _answer(self, request: Request) -> Response:
        arguments = {one.name: one.read(request) for one in self.parameters}
        if self._wants_request:
            arguments[_REQUEST] = request
        return await self.handler(**arguments)


class Router:
    """The routes of one module, in the order in which they are tried."""

    def __init__(self) -> None:
        self.routes: list[Route] = []
        self._served: set[tuple[str, str]] = set()

    def add(
        self, path: str, handler: Handler, methods: Sequence[str], summary: str = "", in_schema: bool = True
    ) -> None:
        for method in methods:
            # The first route would answer, and the second one would stand in the reference page all the same.
            assert (method, path) not in self._served, f"{method} {path} has two functions"
            self._served.add((method, path))
        self.routes.append(Route(path, handler, methods, summary, in_schema))

    def get(self, path: str, summary: str) -> Callable[[_Function], _Function]:
        return self._adds(path, "GET", summary)

    def post(self, path: str, summary: str) -> Callable[[_Function], _Function]:
        return self._adds(path, "POST", summary)

    def put(self, path: str, summary: str) -> Callable[[_Function], _Function]:
        return self._adds(path, "PUT", summary)

    def delete(self, path: str, summary: str) -> Callable[[_Function], _Function]:
        return self._adds(path, "DELETE", summary)

    def _adds(self, path: str, method: str, summary: str) -> Callable[[_Function], _Function]:
        def adds(handler: _Function) -> _Function:
            self.add(path, handler, [method], summary)
            return handler

        return adds


def whole_number(name: str, text: str) -> int:
    """The number that a parameter's text stands for; 400 when it stands for none."""
    text = text.strip()
    if not _WHOLE_NUMBER.fullmatch(text):
        raise Refused(400, f"{name}: Input should be a valid integer, unable to parse string as an integer")
    try:
        return int(text.partition(".")[0])
    except ValueError:  # more digits than Python turns into a number
        raise Refused(
            400, f"{name}: Unable to parse input string as an integer, exceeded maximum size"
        ) from None


def document(title: str, version: str, routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """The OpenAPI document of all routes that are to be shown."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route) and route.include_in_schema:
            for method in sorted(route.methods or ()):
                paths.setdefault(route.path_format, {})[method.lower()] = _operation(route, method)
    return {"openapi": "3.1.0", "info": {"title": title, "version": version}, "paths": paths}


def _operation(route: Route, method: str) -> dict[str, Any]:
    words = {one.name: one for one in route.parameters}
    in_path = [words.get(name) or Parameter(name, True, False, _REQUIRED) for name in route.param_convertors]
    shown = [*in_path, *(one for one in route.parameters if not one.in_path)]
    return {
        "summary": route.summary,
        "operationId": re.sub(r"\W", "_", f"{route.name}{route.path_format}_{method.lower()}"),
        **({"parameters": [_described(one) for one in shown]} if shown else {}),
        "responses": {"200": {"description": "Successful Response"}},
    }


def _described(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "path" if parameter.in_path else "query",
        "required": parameter.in_path or parameter.default is _REQUIRED,
        "schema": {"type": "integer" if parameter.is_number else "string"},
    }
