"""Services of AWS for a test: moto's server as a process, and a line to it that tests cut or have refuse requests."""

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from magnetar.testing.server import free_ports

REGION = "us-west-1"
KEYS = {"accessKey": "AKIAIOSFODNN7EXAMPLE", "secretKey": "secret-of-aws-Zk3qPv9xT7"}
_START_S = 120.0


class MotoServer:
    """For the length of a `with` block."""

    def __init__(self) -> None:
        [self._port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        give_up_at = time.monotonic() + _START_S
        while not self._answers():
            assert time.monotonic() < give_up_at, "moto's server does not answer"
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        assert self._process.poll() is None, "moto's server has ended"
        try:
            urllib.request.urlopen(f"{self.url}/moto-api/data.json", timeout=5).close()
        except OSError:
            return False
        return True

    def ask_for_credentials(self) -> None:
        """From now on it refuses who is not a user of its own with rights."""
        request = urllib.request.Request(f"{self.url}/moto-api/reset-auth", b"0", method="POST")
        request.add_header("Content-Type", "text/plain")
        urllib.request.urlopen(request, timeout=60).close()

    def client(self, service: str, **more: Any) -> Any:
        import boto3  # collecting is quicker without
        from botocore.config import Config

        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", **more}
        return boto3.client(
            service, region_name=REGION, endpoint_url=self.url, config=Config(read_timeout=300), **keys
        )


def records_of(kinesis: Any, stream: str) -> list[tuple[str, bytes]]:
    """(partition key, data) of each record of a stream, of each shard in order."""
    found = []
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        at = kinesis.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while True:
            answer = kinesis.get_records(ShardIterator=at)
            if not answer["Records"]:
                break
            found += [(one["PartitionKey"], one["Data"]) for one in answer["Records"]]
            at = answer["NextShardIterator"]
    return found


Answer = tuple[int, bytes]
Fault = Callable[[str, Any, Callable[[Any], Answer]], Answer | None]


class Line:
    """A line to a server.  `fault(action, body, ask)` answers a request in its stead; None leaves it to the server.
    `requests` has the bodies by action.  `cut` ends it, `mend` has it listen at its port again.
    """

    def __init__(self, url: str) -> None:
        self._to = url
        self.fault: Fault | None = None
        self.requests: list[tuple[str, Any]] = []
        [self._port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.mend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()

    def mend(self) -> None:
        line = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = line._answered(dict(self.headers), content)
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *arguments: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def cut(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answered(self, headers: dict[str, str], content: bytes) -> Answer:
        action = headers["X-Amz-Target"].rpartition(".")[2]
        body = json.loads(content)
        self.requests.append((action, body))

        def ask(what: Any) -> Answer:
            kept = {
                name: one for name, one in headers.items() if name.lower() not in ("host", "content-length")
            }
            request = urllib.request.Request(self._to, json.dumps(what).encode(), kept, method="POST")
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()

        found = None if self.fault is None else self.fault(action, body, ask)
        return ask(body) if found is None else found


def refusal(code: str, status: int = 400) -> Answer:
    return status, json.dumps({"__type": code, "message": "said by the test"}).encode()
