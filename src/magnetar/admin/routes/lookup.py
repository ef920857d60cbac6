"""Look-ups: which server serves a topic.  Clients with an `http://` service URL ask this first."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from magnetar.admin.answers import Refused, text, value
from magnetar.admin.context import caller_of, cases_of, context_of, host_of
from magnetar.admin.names import topic_name
from magnetar.admin.routing import Router
from magnetar.base.pulsar_listeners import ADVERTISED_SCHEMES
from magnetar.broker.cluster.model import NO_LISTENER, url_of

router: Final = Router()
_PARAMETER: Final = "listenerName"
_HEADER: Final = "X-Pulsar-ListenerName"
_L: Final = "/lookup/v2/topic/{domain:domain}/{tenant}/{namespace}/{topic}"


@router.get(_L, summary="The broker that serves a topic: this one")
async def lookup(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    place = cases_of(request).pulsar_topics.lookup(caller_of(request), name, index)
    context = context_of(request)
    listener = request.query_params.get(_PARAMETER) or request.headers.get(_HEADER, "")
    endpoints = context.pulsar.of(listener) if place is None else place.of(listener)
    if endpoints is None:  # Pulsar 4.0.8 answers with 500 and this text
        raise Refused(404, NO_LISTENER.format(listener[:100]))
    service, tls, web, web_tls = (
        url_of(endpoints, scheme, host_of(request)) or "" for scheme in ADVERTISED_SCHEMES
    )
    if place is None and listener not in context.pulsar.listeners:
        web, web_tls = context.web_urls(request)
    # The C++ client refuses an answer without the first two.
    return value(
        {
            "brokerUrl": service,
            "brokerUrlTls": tls,
            "brokerUrlSsl": tls,
            "httpUrl": web,
            "httpUrlTls": web_tls,
            "nativeUrl": service,
        }
    )


@router.get(_L + "/bundle", summary="The part of the namespace's hash space that a topic falls into")
async def bundle(request: Request, domain: str, tenant: str, namespace: str, topic: str) -> Response:
    name, index = topic_name(domain, tenant, namespace, topic)
    return text(cases_of(request).namespaces.bundle_of(caller_of(request), name, index))
