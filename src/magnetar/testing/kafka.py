"""Kafka requests without sockets: a handler is asked as a connection asks it, through the encoders and decoders."""

import asyncio
import importlib
from typing import Any

from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.large import Large
from magnetar.protocols.kafka.registry import Deferred, is_coroutine
from magnetar.wire.kafka.messages import asking
from magnetar.wire.kafka.runtime import Buffer


async def ask(context: RequestContext, name: str, request: Any) -> Any:
    """The decoded response of the API with this module name, in the version of the context."""
    version = context.api_version
    codec = importlib.import_module(f"magnetar.wire.kafka.messages.{name}")
    parts: list[Buffer] = []
    asked = asking.load(codec.API_KEY)
    asked.encode_request(version, request, parts)
    received = codec.decode_request(version, memoryview(b"".join(parts)))
    api = context.service.apis[codec.API_KEY]
    assert api.min_version <= version <= api.max_version
    answer = api.handle(context, received)
    if isinstance(answer, Deferred):
        resolved: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.attach(resolved.set_result)
        if answer.stage_one is not None:
            await answer.take_stage_one()()
        answer = await resolved
    if is_coroutine(answer):
        answer = await answer
    if isinstance(answer, Large):
        answer = answer.response
    parts = []
    codec.encode_response(version, answer, parts)
    return asked.decode_response(version, memoryview(b"".join(parts)))
