"""From the options about the broker's address to its REST interface.

`admin.url` is its address, and a `context` names it together with how to log in.  A job that was written for Kafka or
Pulsar only knows another port of the same host.  Then this module tries the usual port of HTTP there, and an error says
what to set.
"""

from typing import Final
from urllib.parse import urlsplit

from magnetar.base.errors import ConfigError
from magnetar.client.errors import ClientError
from magnetar.client.login import Server
from magnetar.client.rest import RestClient
from magnetar.pipelines.connector.options import OptionError
from magnetar.pipelines.connector.read.options import Address

HTTP_PORT_DEFAULT: Final = 8080
_LOOK_S: Final = 3.0
_HOSTS_MAX: Final = 5


def find(address: Address) -> Server:
    """The server.

    Raises:
        OptionError: there is no such context; or it has to be found by guessing, and nothing answers there as Magnetar
            does.
    """
    if address.context is not None:
        try:
            return Server.of(address.context)
        except ConfigError as error:
            raise OptionError(f"option context: {error}") from None
    if address.admin_url is not None:
        return Server(address.admin_url)
    option = "kafka.bootstrap.servers" if address.bootstrap_servers is not None else "service.url"
    text = address.bootstrap_servers if address.bootstrap_servers is not None else address.service_url
    assert text is not None
    tried: list[str] = []
    for host in _hosts(option, text)[:_HOSTS_MAX]:
        url = f"http://{host}:{HTTP_PORT_DEFAULT}"
        tried.append(url)
        try:
            with RestClient(url, read_s=_LOOK_S, retry_s=0.0) as client:
                client.topics("-")  # no topic has this name: an answer, and a short one
        except ClientError:
            continue
        return Server(url)
    raise OptionError(
        f"option {option}: records are read over HTTP, and no Magnetar server answers at {' or '.join(tried)};"
        " set admin.url to its HTTP address"
    )


def _hosts(option: str, text: str) -> list[str]:
    """The hosts of `host:port,host:port` or `pulsar://host:port,host:port`, as a URL has them."""
    _, separator, rest = text.partition("://")
    hosts: list[str] = []
    for each in (rest if separator else text).split(","):
        try:
            host = urlsplit(f"//{each.strip()}").hostname
        except ValueError:
            host = None
        if not host:
            raise OptionError(f"option {option}: {each.strip()!r} is not an address such as host:9092")
        hosts.append(f"[{host}]" if ":" in host else host)
    return list(dict.fromkeys(hosts))
