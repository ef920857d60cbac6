"""The positions of a subscription in many partitions (`/magnetar/v1/positions`): show, set and drop them in one call;
and how far a replicator may read on (`/magnetar/v1/admissions`).

Pulsar's own routes, for one subscription of one topic, are in `subscriptions.py`.
"""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import Refused, flag, made, object_body, value
from magnetar.admin.context import caller_of, cases_of
from magnetar.admin.routing import Router
from magnetar.admin.rows import error_row, partition_in, required_number_in, rows_of, text_in
from magnetar.base.errors import BrokerError
from magnetar.broker.usecases.positions import WantedPosition, WantedRange

router: Final = Router()
_PATH: Final = "/magnetar/v1/positions"


@router.get(_PATH, summary="Where ?subscription stands in all its partitions, or in those of ?topic")
async def read(request: Request) -> Response:
    cases, name = cases_of(request), _name(request)
    found = await cases.positions.read(caller_of(request), name, _topics(request))

    def content() -> dict[str, Any]:
        rows = [
            {
                "topic": cases.kafka_names.shown(one.topic),
                "full": one.topic.full,
                "partition": one.partition,
                "offset": one.offset,
                "backlog": one.backlog,
            }
            for one in found
        ]
        return {"subscription": name, "positions": rows}

    return await made(content)


@router.post(_PATH, summary="Make a subscription that holds data at offsets, or move it forward to them")
async def write(request: Request) -> Response:
    body = await object_body(request)
    name = text_in(body, "subscription")
    wanted = [
        WantedPosition(text_in(row, "topic"), partition_in(row), required_number_in(row, "offset"))
        for row in rows_of(body, "positions")
    ]
    errors = await cases_of(request).positions.hold(caller_of(request), name, wanted)

    def content() -> dict[str, Any]:
        rows = [
            {"topic": one.topic, "partition": one.partition, "error": None}
            if error is None
            else error_row(one.topic, one.partition, error)
            for one, error in zip(wanted, errors, strict=True)
        ]
        return {"subscription": name, "positions": rows}

    return await made(content)


@router.delete(
    _PATH, summary="Drop ?subscription, of all topics or of ?topic; ?force=true disconnects consumers"
)
async def drop(request: Request) -> Response:
    positions, name = cases_of(request).positions, _name(request)
    count = await positions.drop(caller_of(request), name, _topics(request), force=flag(request, "force"))
    return value({"subscription": name, "dropped": count})


@router.post(
    "/magnetar/v1/admissions", summary="How far a replicator may read now, as the rates of its topics let it"
)
async def admit(request: Request) -> Response:
    body = await object_body(request)
    name = text_in(body, "subscription")
    wanted = [
        WantedRange(
            text_in(row, "topic"),
            partition_in(row),
            required_number_in(row, "from_offset"),
            required_number_in(row, "to_offset"),
        )
        for row in rows_of(body, "partitions")
    ]
    found = await cases_of(request).positions.admit(caller_of(request), name, wanted)

    def content() -> dict[str, Any]:
        rows = [
            error_row(one.topic, one.partition, end)
            if isinstance(end, BrokerError)
            else {"topic": one.topic, "partition": one.partition, "to_offset": end, "error": None}
            for one, end in zip(wanted, found, strict=True)
        ]
        return {"subscription": name, "partitions": rows}

    return await made(content)


def _name(request: Request) -> str:
    name = request.query_params.get("subscription", "")
    if not name:
        raise Refused(400, "say which ?subscription")
    return name


def _topics(request: Request) -> list[str] | None:
    """The topics that the request names; None for all."""
    return request.query_params.getlist("topic") or None
