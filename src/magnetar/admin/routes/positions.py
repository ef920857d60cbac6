"""Where a subscription stands in many partitions (`/magnetar/v1/positions`): told, set and dropped in one call.

What Pulsar's own routes do for one subscription of one topic is in `subscriptions`.
"""

from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import BadBody, Refused, object_body, value
from magnetar.admin.context import broker_of
from magnetar.admin.routes.segments import error_row, number_in, partition_in, rows_of, text_in
from magnetar.admin.routing import Router
from magnetar.base.errors import BrokerError
from magnetar.base.names import TopicName
from magnetar.broker.errors import OffsetOutOfRange
from magnetar.broker.subscriptions.errors import SubscriptionNotFound

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.log.partition import Partition

router: Final = Router()
_PATH: Final = "/magnetar/v1/positions"


@router.get(_PATH, summary="Where ?subscription stands in all its partitions, or in those of ?topic")
async def read(request: Request) -> Response:
    broker = broker_of(request)
    name = _name(request)
    rows = []
    for partition, offset in _standing(broker, name, _topics(broker, request)):
        rows.append(
            {
                "topic": broker.kafka_name(partition.topic.name),
                "full": partition.topic.name.full,
                "partition": partition.index,
                "offset": offset,
                "backlog": broker.subscription_admin.backlog(partition, name),
            }
        )
    if not rows:
        raise _not_found(name)
    return value({"subscription": name, "positions": rows})


@router.post(_PATH, summary="Make a subscription that holds data at offsets, or move it forward to them")
async def write(request: Request) -> Response:
    broker = broker_of(request)
    body = await object_body(request)
    name = text_in(body, "subscription")
    wanted: dict[Partition, int] = {}
    rows: list[dict[str, Any]] = []
    for row in rows_of(body, "positions"):
        topic, index, offset = text_in(row, "topic"), partition_in(row), number_in(row, "offset")
        if offset is None:
            raise BadBody("offset must be a whole number")
        try:
            partition = broker.segments.partition(topic, index)
            if offset > partition.log.high_watermark:
                raise OffsetOutOfRange(
                    f"{topic} partition {index} ends at {partition.log.high_watermark}: a subscription cannot stand at"
                    f" {offset}"
                )
        except BrokerError as error:
            rows.append(error_row(topic, index, error))
            continue
        wanted[partition] = offset
        rows.append({"topic": topic, "partition": index, "error": None})
    await broker.subscription_admin.hold(name, wanted)
    return value({"subscription": name, "positions": rows})


@router.delete(
    _PATH, summary="Drop ?subscription, of all topics or of ?topic; ?force=true disconnects consumers"
)
async def drop(request: Request) -> Response:
    broker = broker_of(request)
    name = _name(request)
    force = request.query_params.get("force", "").lower() == "true"
    found = _standing(broker, name, _topics(broker, request))
    for partition, _ in found:
        await broker.subscription_admin.delete(partition, name, force=force)
    return value({"subscription": name, "dropped": len(found)})


def _name(request: Request) -> str:
    name = request.query_params.get("subscription", "")
    if not name:
        raise Refused(400, "say which ?subscription")
    return name


def _not_found(name: str) -> Refused:
    return Refused(404, f"there is no subscription {name[:200]}", SubscriptionNotFound.code)


def _topics(broker: "Broker", request: Request) -> frozenset[str] | None:
    """Full names of the topics that are asked for; None for all."""
    given = request.query_params.getlist("topic")
    return frozenset(broker.topic_name(one).full for one in given) if given else None


def _standing(broker: "Broker", name: str, topics: frozenset[str] | None) -> "list[tuple[Partition, int]]":
    """Partitions with the subscription, and its position in each."""
    found = []
    for full, partitions in sorted(broker.cursors.subscription(name).items()):
        if topics is not None and full not in topics:
            continue
        topic = broker.topics.find(TopicName.parse(full))
        if topic is None:
            continue  # it is being deleted
        for index, cursor in sorted(partitions.items()):
            if index < topic.partition_count:
                found.append((topic.partition(index), cursor.mark_delete))
    return found
