"""`magnetar pipelines` against a server that remembers what it was asked."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from magnetar.cli import output
from magnetar.cli.main import run

PIPELINE: dict[str, Any] = {
    "name": "a",
    "id": "1",
    "kind": "query",
    "config": {"sql": "select 1"},
    "desired": "RUNNING",
    "run": 1,
    "subscription": "pipeline-a",
    "created_ms": 5,
    "state": "STARTING",
    "reason": "",
    "status": {"lag": 1234567, "lags": {"t-0": 7}},
}
ROW = {
    "name": "a",
    "kind": "query",
    "desired": "RUNNING",
    "state": "FAILED",
    "reason": "no such topic [t]",
    "lag": 1234567,
    "lag_s": 12.5,
    "rows": None,
    "bytes": 4096,
    "rows_per_second": 2.25,
    "errors": 3,
    "restarts": 2,
    "last_error": "no such topic [t]",
}


class Server:
    """Answers from `answers`, {"METHOD /path": [(status, body), ...]}, the last of which is repeated."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.answers: dict[str, list[tuple[int, Any]]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                what = f"{self.command} {self.path}"
                length = int(self.headers.get("content-length") or 0)
                outer.authorizations.append(self.headers.get("authorization"))
                outer.asked.append((what, json.loads(self.rfile.read(length)) if length else None))
                waiting = outer.answers[what]
                status, body = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                content = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, what: str, body: Any, status: int = 200) -> None:
        method, _, path = what.partition(" ")
        self.answers.setdefault(f"{method} /magnetar/v1/pipelines{path}", []).append((status, body))

    def run(self, *arguments: str) -> int:
        return run(["pipelines", *arguments, "--url", self.url])


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


Captured = pytest.CaptureFixture[str]


class TestCreate:
    @pytest.mark.parametrize(
        "text",
        [
            json.dumps({"name": "a", "kind": "query", "config": {"n": 1}}),
            "name: a\nkind: query\nconfig:\n  n: 1\n",
        ],
        ids=["json", "yaml"],
    )
    def test_a_file_is_declared(self, server: Server, tmp_path: Path, capsys: Captured, text: str) -> None:
        server.answer("POST ?start=true", PIPELINE, 201)
        (tmp_path / "a").write_text(text)
        assert server.run("create", "--file", str(tmp_path / "a"), "-o", "json") == 0
        assert server.asked[0][1] == {"name": "a", "kind": "query", "config": {"n": 1}}
        assert json.loads(capsys.readouterr().out)["state"] == "STARTING"

    def test_options_are_over_the_file(self, server: Server, tmp_path: Path) -> None:
        server.answer("POST ?start=false", PIPELINE, 201)
        (tmp_path / "a").write_text("name: b\nkind: query\n")
        arguments = ["--file", str(tmp_path / "a"), "--kind", "table", "--config", '{"n": 2}', "--no-start"]
        assert server.run("create", "a", *arguments) == 0
        assert server.asked[0][1] == {"name": "a", "kind": "table", "config": {"n": 2}}

    @pytest.mark.parametrize(
        ("text", "arguments", "said"),
        [
            ("name: a", [], "needs a kind"),
            ("kind: a", [], "needs a name"),
            ("[1]", [], "must be an object"),
            ("a: [", [], "neither YAML nor JSON"),
            ("name: a\nkinds: x", [], "has the key kinds"),
            ("name: a\nkind: x\nconfig: 7", [], "config must be an object"),
            ("name: a\nkind: x", ["--config", "{"], "--config is not JSON"),
            ("!!python/object/apply:os.system [true]", [], "neither YAML nor JSON"),
        ],
    )
    def test_what_is_wrong_is_said_before_the_server_is_asked(
        self, server: Server, tmp_path: Path, capsys: Captured, text: str, arguments: list[str], said: str
    ) -> None:
        (tmp_path / "a").write_text(text)
        assert server.run("create", "--file", str(tmp_path / "a"), *arguments) == 2
        assert said in capsys.readouterr().err
        assert server.asked == []

    def test_it_can_be_waited_for(self, server: Server, capsys: Captured) -> None:
        server.answer("POST ?start=true", PIPELINE, 201)
        server.answer("GET /a", {**PIPELINE, "reason": "Spark starts"})
        server.answer("GET /a", {**PIPELINE, "state": "RUNNING"})
        assert server.run("create", "a", "--kind", "query", "--wait", "20", "-o", "json") == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["state"] == "RUNNING"
        assert err.splitlines() == ["a: STARTING", "a: STARTING Spark starts"]

    def test_waiting_for_one_that_fails_ends_with_its_reason(self, server: Server, capsys: Captured) -> None:
        server.answer("POST ?start=true", PIPELINE, 201)
        server.answer("GET /a", {**PIPELINE, "state": "FAILED", "reason": "no topic"})
        assert server.run("create", "a", "--kind", "query", "--wait", "20") == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines()[-1] == "magnetar: a has failed: no topic"

    def test_what_the_server_refuses_is_said_in_its_words(self, server: Server, capsys: Captured) -> None:
        server.answer("POST ?start=true", {"error": "PIPELINE_EXISTS", "reason": "there is one"}, 409)
        assert server.run("create", "a", "--kind", "query") == 1
        assert capsys.readouterr().err == "magnetar: there is one\n"


class TestShowing:
    def test_the_list_is_a_table_for_people_and_json_for_programs(
        self, server: Server, capsys: Captured
    ) -> None:
        server.answer("GET ", {"pipelines": [ROW], "worker": None})
        assert server.run("list") == 0
        out = capsys.readouterr().out
        assert "1,234,567" in out
        assert "no such topic [t]" in out
        assert server.run("list", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == [ROW]

    @pytest.mark.parametrize("command", [["list"], ["status", "a"], ["stats", "a"]])
    def test_what_is_watched_is_shown_again_until_the_command_ends(
        self, server: Server, capsys: Captured, monkeypatch: pytest.MonkeyPatch, command: list[str]
    ) -> None:
        monkeypatch.setattr(output, "WATCH_S", 0.001)
        what = {"list": "GET ", "status": "GET /a", "stats": "GET /a/stats"}[command[0]]
        for lag in (71, 72):
            status = {**PIPELINE["status"], "lag": lag}
            bodies = {"list": {"pipelines": [{**ROW, "lag": lag}]}, "stats": status}
            server.answer(what, bodies.get(command[0], {**PIPELINE, "status": status}))
        server.answer(what, {"error": "PIPELINE_NOT_FOUND", "reason": "it is gone"}, 404)
        assert server.run(*command, "--watch") == 1
        shown = capsys.readouterr()
        assert "71" in shown.out
        assert "72" in shown.out
        assert "it is gone" in shown.err

    def test_status_and_stats_show_nested_numbers(self, server: Server, capsys: Captured) -> None:
        server.answer("GET /a", PIPELINE)
        server.answer("GET /a/stats", PIPELINE["status"])
        assert server.run("status", "a") == 0
        assert "pipeline-a" in capsys.readouterr().out
        assert server.run("status", "a", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == PIPELINE
        assert server.run("stats", "a") == 0
        out = capsys.readouterr().out
        assert "lags t-0" in out
        assert "1,234,567" in out

    def test_a_name_cannot_lead_elsewhere(self, server: Server) -> None:
        server.answer("GET /..%2Fworker", {"error": "NOT_FOUND", "reason": "no"}, 404)
        assert server.run("status", "../worker") == 1


class TestChanging:
    @pytest.mark.parametrize(
        ("verb", "state"), [("start", "RUNNING"), ("stop", "STOPPED"), ("restart", "RUNNING")]
    )
    def test_verbs_wait_for_what_they_want(
        self, server: Server, capsys: Captured, verb: str, state: str
    ) -> None:
        server.answer(f"PUT /a/{verb}", PIPELINE)
        server.answer("GET /a", {**PIPELINE, "state": state})
        assert server.run(verb, "a", "--wait", "20", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out)["state"] == state

    def test_deleting_is_asked_for_twice(self, server: Server, capsys: Captured) -> None:
        server.answer("GET /a", PIPELINE)
        server.answer("DELETE /a", None, 204)
        assert server.run("delete", "a") == 2
        assert "--yes" in capsys.readouterr().err
        assert server.run("delete", "a", "--dry-run") == 0
        assert [what for what, _ in server.asked if what.startswith("DELETE")] == []
        assert server.run("delete", "a", "--yes") == 0
        assert "a is deleted" in capsys.readouterr().err


class TestToken:
    def test_token_is_shown_from_the_line_a_file_or_the_environment(
        self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.answer("GET ", {"pipelines": [ROW]})
        server.answer("GET /a", PIPELINE)
        server.answer("PUT /a/stop", PIPELINE)
        file = tmp_path / "token"
        file.write_text("from-file\n")
        assert server.run("list") == 0
        assert server.run("list", "--token", "from-line") == 0
        assert server.run("status", "a", "--token", f"file://{file}") == 0
        monkeypatch.setenv("MAGNETAR_TOKEN", "from-environment")
        assert server.run("stop", "a") == 0
        assert server.authorizations == [
            None,
            "Bearer from-line",
            "Bearer from-file",
            "Bearer from-environment",
        ]

    def test_what_is_no_token_is_one_sentence_without_it(self, server: Server, capsys: Captured) -> None:
        assert server.run("list", "--token", "two words") == 2
        assert server.run("list", "--token", "file:///there/is/none") == 2
        said = capsys.readouterr().err
        assert "two words" not in said
        assert "Traceback" not in said
        assert server.authorizations == []
