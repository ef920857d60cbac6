"""Routes of the admin API: a path, its methods, one sentence about what it does, and the function that answers.

The parameters of a function say what it needs: `request`, words of the path, and otherwise parameters of the query.
They are texts, or whole numbers if the annotation says so; if one is missing or no number, the answer is 400.  A path
answers only the methods that it names: HEAD gets 405 where only GET is served.

`document` makes the OpenAPI document of all routes, for /openapi.json.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, compile_path, request_response
from starlette.routing import Route as StarletteRoute
from starlette.types import Scope

from magnetar.admin.answers import Refused

Handler = Callable[..., Awaitable[Response]]
_Function = TypeVar("_Function", bound=Handler)

_REQUEST: Final = "request"
_REQUIRED: Final = inspect.Parameter.empty
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?")


class Parameter(NamedTuple):
    """A parameter of a function, which comes from a request's URL, and its default."""

    name: str
    in_path: bool
    is_number: bool
    default: Any

    def read(self, request: Request) -> Any:
        """Its value.  Raises Refused with 400 if it is missing, or should be a number and is not."""
        values = request.path_params if self.in_path else request.query_params
        text = values.get(self.name)
        if text is None:
            if self.default is _REQUIRED:
                raise Refused(400, f"{self.name}: Field required")
            return self.default
        return whole_number(self.name, text) if self.is_number else text


class Route(StarletteRoute):
    """One path, its methods, and the sentence about it for the reference page.

    Starlette's route compiles its path when it is made, and hundreds of them were a tenth of the processor's time of a
    start.  This one compiles it for the first request whose path begins as its own does.
    """

    def __init__(
        self, path: str, handler: Handler, methods: Sequence[str], summary: str, in_schema: bool = True
    ) -> None:
        self.path = path
        self.endpoint = self._answer
        self.name = handler.__name__
        self.include_in_schema = in_schema
        self.app = request_response(self._answer)
        self.methods = set(methods)
        self.summary = summary
        self.handler = handler
        self._begins = path.partition("{")[0]
        self._is_compiled = False

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        self.compile()
        return tuple(
            Parameter(
                one.name, one.name in self.param_convertors, one.annotation in (int, int | None), one.default
            )
            for one in inspect.signature(self.handler).parameters.values()
            if one.name != _REQUEST
        )

    @cached_property
    def _wants_request(self) -> bool:
        return _REQUEST in inspect.signature(self.handler).parameters

    def compile(self) -> None:
        """Set what Starlette's route has of its path."""
        if not self._is_compiled:
            self.path_regex, self.path_format, self.param_convertors = compile_path(self.path)
            self._is_compiled = True

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if not scope["path"].startswith(self._begins):
            return Match.NONE, {}
        self.compile()
        return super().matches(scope)

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
            # Only the first route would answer, but the reference page would show both.
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
    """The number in a parameter's text.  Raises Refused with 400 if it is none."""
    text = text.strip()
    if not _WHOLE_NUMBER.fullmatch(text):
        raise Refused(400, f"{name}: Input should be a valid integer, unable to parse string as an integer")
    try:
        return int(text.partition(".")[0])
    except ValueError:  # more digits than Python converts
        raise Refused(
            400, f"{name}: Unable to parse input string as an integer, exceeded maximum size"
        ) from None


def document(title: str, version: str, routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """The OpenAPI document of all routes, except hidden ones."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route) and route.include_in_schema:
            route.compile()
            for method in sorted(route.methods or ()):
                paths.setdefault(route.path_format, {})[method.lower()] = _operation(route, method)
    return {"openapi": "3.1.0", "info": {"title": title, "version": version}, "paths": paths}


def _operation(route: Route, method: str) -> dict[str, Any]:
    words = {one.name: one for one in route.parameters}
    in_path = [words.get(name) or Parameter(name, True, False, _REQUIRED) for name in route.param_convertors]
    shown = [*in_path, *(one for one in route.parameters if not one.in_path)]
    return {
        "summary": route.summary,
        # Generated clients name their functions by it, so it follows from what a client sends.
        "operationId": re.sub(r"\W", "_", f"{method.lower()}{route.path_format}"),
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
