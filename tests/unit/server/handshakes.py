"""What a client sees of a listener's certificate, without sockets."""

import ssl
from contextlib import suppress
from pathlib import Path


def shown(context: ssl.SSLContext, authority: Path, asked_for: str = "localhost") -> str:
    """The name in the certificate that a client is shown, which trusts `authority`."""
    trusting = ssl.create_default_context(cafile=str(authority))
    certificate = handshake(context, trusting, asked_for).getpeercert()
    assert certificate is not None
    return str(certificate["subject"][0][0][1])


def handshake(
    context: ssl.SSLContext, trusting: ssl.SSLContext, asked_for: str | None = "localhost"
) -> ssl.SSLObject:
    """The client's side of one, when it is over.  Raises ssl.SSLError."""
    client_in, client_out, server_in, server_out = (ssl.MemoryBIO() for _ in range(4))
    client = trusting.wrap_bio(client_in, client_out, server_hostname=asked_for)
    server = context.wrap_bio(server_in, server_out, server_side=True)
    for _ in range(3):
        for one, out, other in ((client, client_out, server_in), (server, server_out, client_in)):
            with suppress(ssl.SSLWantReadError):
                one.do_handshake()
            other.write(out.read())
    return client
