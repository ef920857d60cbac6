"""What the HTTP client does when a server does not answer as it should."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from magnetar.client.errors import (
    BadAnswer,
    ClientError,
    NotFound,
    OutOfRange,
    Refused,
    Unavailable,
    Unreachable,
)
from magnetar.client.http import HttpClient
from magnetar.client.login import Login
from magnetar.client.rest import Range, RestClient

Answers = list[tuple[int, bytes]]


@contextmanager
def serving(answers: Answers, port: int = 0) -> Iterator[tuple[str, list[str]]]:
    """A server that gives `answers` one after the other; its address, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status, body = answers[min(len(asked), len(answers)) - 1]
            if status == 0:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


BUSY = (503, b'{"error": "STORAGE_ERROR", "reason": "not now"}')
BROKEN_OFF = (0, b"")
FINE = (200, b"{}")


@pytest.mark.parametrize("trouble", [BUSY, BROKEN_OFF, (503, b"Service Unavailable")])
def test_what_may_pass_is_tried_again(trouble: tuple[int, bytes]) -> None:
    with serving([trouble, trouble, FINE]) as (url, asked):
        client = HttpClient(url)
        assert client.get_json("/x", {"a": "b c"}) == {}
        assert asked == ["/x?a=b+c"] * 3
        client.close()


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (
            404,
            b'{"error": "UNKNOWN_TOPIC", "reason": "there is no topic t"}',
            NotFound,
            "there is no topic t",
        ),
        (416, b'{"error": "OFFSET_OUT_OF_RANGE", "reason": "behind"}', OutOfRange, "behind"),
        (409, b'{"error": "NON_PERSISTENT", "reason": "no"}', Refused, "no"),
        (500, b'{"reason": "damaged"}', Refused, "damaged"),
        (404, b"<html>not found</html>", BadAnswer, "not as a Magnetar server"),
        (400, b"[]", BadAnswer, "not as a Magnetar server"),
        (302, b"", BadAnswer, "status 302"),
        (200, b"<html>hello</html>", BadAnswer, "not JSON"),
    ],
)
def test_what_will_not_pass_is_said_at_once(
    status: int, body: bytes, kind: type[ClientError], text: str
) -> None:
    with serving([(status, body)]) as (url, asked):
        client = HttpClient(url)
        with pytest.raises(kind, match=text):
            client.get_json("/x")
        assert len(asked) == 1
        client.close()


def test_a_server_that_comes_back_in_time_is_waited_for() -> None:
    with serving([FINE]) as (url, _):
        pass  # now another process may have the port, or none
    port = int(url.rpartition(":")[2])
    answers: list[object] = []
    client = HttpClient(url)
    asking = threading.Thread(target=lambda: answers.append(client.get_json("/x")))
    asking.start()
    with serving([FINE], port):
        asking.join(20)
    assert answers == [{}]
    client.close()


def test_that_no_server_is_there_is_said_when_the_time_is_over() -> None:
    with serving([FINE]) as (url, _):
        pass
    client = HttpClient(url, retry_s=0.3)
    with pytest.raises(Unreachable, match="does not answer"):
        client.get_json("/x")
    client.close()
    with serving([BUSY]) as (url, asked):
        client = HttpClient(url, retry_s=0.3)
        with pytest.raises(Unavailable, match="not now"):
            client.get_json("/x")
        assert len(asked) > 1
        client.close()


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://x", "http://", "http://x:port", "http://[::1"])
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(ClientError, match="looks like http://localhost:8080"):
        HttpClient(url)


@pytest.mark.parametrize("url", ["http://user:hunter2@localhost:8080", "ftp://hunter2@x"])
def test_an_address_with_a_password_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ClientError, match="has a user in it") as refused:
        HttpClient(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.topics(),
        lambda client: client.segments([Range("t", 0)]),
        lambda client: client.offsets([("t", 0, None)]),
        lambda client: client.positions("s"),
        lambda client: client.schema("t"),
        lambda client: client.entries("t", 0, 0),
    ],
)
@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"partitions": [{}], "topics": [{}], "positions": [5]}', b"null"]
)
def test_an_answer_that_lacks_what_it_must_have_is_said(
    call: Callable[[RestClient], object], body: bytes
) -> None:
    with serving([(200, body)]) as (url, _), RestClient(url) as client, pytest.raises(BadAnswer):
        call(client)


def test_a_request_that_is_refused_is_asked_again_with_another_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    with serving([(200, b"{}"), (401, b"{}"), (200, b"{}"), (401, b"{}")]) as (url, seen):
        client = HttpClient(url, login=Login(token=file.as_uri()))
        client.get_json("/a")
        file.write_text("new")
        client.get_json("/b")
        with pytest.raises(BadAnswer):  # the same token again is no reason to ask again
            client.get_json("/c")
    assert len(seen) == 4
