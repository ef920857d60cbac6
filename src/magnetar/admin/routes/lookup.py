"""Where a topic is served: what clients with an `http://` service URL ask first."""

import itertools
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import text, value
from magnetar.admin.context import broker_of, context_of, web_url
from magnetar.admin.names import topic_hash, topic_name
from magnetar.admin.routing import Router

router: Final = Router()
_L: Final = "/lookup/v2/topic/{domain:domain}/{tenant}/{namespace}/{topic}"


@router.get(_L, summary="The broker that serves a topic: this one")
async def lookup(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, _ = topic_name(domain, tenant, namespace, topic)
    context = context_of(request)
    context.broker.pulsar_topics.find(name)
    service = context.service_url(request)
    web = web_url(request)
    # The C++ client refuses an answer without both of the first two.
    return value(
        {
            "brokerUrl": service,
            "brokerUrlTls": "",
            "brokerUrlSsl": "",
            "httpUrl": web,
            "httpUrlTls": "",
            "nativeUrl": service,
        }
    )


@router.get(_L + "/bundle", summary="The part of the namespace's hash space that a topic falls into")
async def bundle(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    boundaries = broker_of(request).namespaces.require(name.namespace_name).bundle_boundaries
    full = name.full if index < 0 else name.partition_name(index)
    position = topic_hash(full)
    low, high = next(
        (low, high)
        for low, high in itertools.pairwise(boundaries)
        if position < int(high, 16) or high == boundaries[-1]
    )
    return text(f"{low}_{high}")
