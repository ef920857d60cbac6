"""Pipelines over REST (docs/reference/pipelines-rest.md): for the command line, and for the worker that runs them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from magnetar.base.error_codes import WORKER_BUSY
from magnetar.client.errors import BadAnswer, Refused
from magnetar.client.http import HttpClient
from magnetar.client.login import Login

PIPELINES: Final = "/magnetar/v1/pipelines"
WORKER: Final = "/magnetar/v1/worker"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline: its declaration, its state and the worker's report; `owner` has declared it (`User:alice`).

    `desired` is RUNNING, STOPPED or DELETED; `state` is CREATED, STARTING, RUNNING, FAILED, STOPPED or DELETING;
    `run` grows with each requested start.
    """

    name: str
    id: str
    kind: str
    config: Mapping[str, Any]
    desired: str
    run: int
    subscription: str
    created_ms: int = 0
    owner: str = ""
    state: str = ""
    reason: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """A pipeline in a list; numbers are None until the worker has reported them."""

    name: str
    kind: str
    desired: str
    state: str
    reason: str
    lag: int | None
    lag_s: float | None
    rows: int | None
    bytes: int | None
    rows_per_second: float | None
    errors: int | None
    restarts: int | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run the pipelines, for `lease_s` seconds from the worker's last request; Kafka clients connect to
    `bootstrap`, and tables are below `table_roots`.
    """

    epoch: int
    lease_s: float
    bootstrap: str
    table_roots: tuple[str, ...]


class PipelinesClient:
    """All calls raise errors of `magnetar.client.errors`.  Calls that must not happen twice are not repeated."""

    def __init__(
        self, url: str, *, read_s: float = 30.0, retry_s: float = 10.0, login: Login | None = None
    ) -> None:
        self.http = HttpClient(url, read_s=read_s, retry_s=retry_s, login=login)
        self._once = HttpClient(url, read_s=read_s, retry_s=0.0, login=login)
        self._worker = HttpClient(url, read_s=read_s, retry_s=0.0, login=login)

    def close(self) -> None:
        self.http.close()
        self._once.close()
        self._worker.close()

    # --- for people

    def create(self, name: str, kind: str, config: Mapping[str, Any], *, start: bool = True) -> Pipeline:
        body = {"name": name, "kind": kind, "config": config}
        query = [("start", "true" if start else "false")]
        return _pipeline(self._once.send_json("POST", PIPELINES, body, query))

    def all(self) -> list[Row]:
        """All pipelines, ordered by name."""
        answer = self.http.get_json(PIPELINES)
        try:
            return [_row(row) for row in answer["pipelines"]]
        except (KeyError, TypeError) as error:
            raise _bad(error) from None

    def get(self, name: str) -> Pipeline:
        return _pipeline(self.http.get_json(_path(name)))

    def stats(self, name: str) -> Mapping[str, Any]:
        """The worker's last numbers; empty until it has reported any."""
        answer: Mapping[str, Any] = self.http.get_json(_path(name) + "/stats")
        return answer

    def start(self, name: str) -> Pipeline:
        return _pipeline(self.http.send_json("PUT", _path(name) + "/start"))

    def stop(self, name: str) -> Pipeline:
        return _pipeline(self.http.send_json("PUT", _path(name) + "/stop"))

    def restart(self, name: str) -> Pipeline:
        return _pipeline(self._once.send_json("PUT", _path(name) + "/restart"))

    def delete(self, name: str, *, force: bool = False) -> bool:
        """Delete a pipeline; returns whether it is gone already.  Otherwise it is gone once the worker has stopped
        it.
        """
        query = [("force", "true")] if force else []
        return self._once.request("DELETE", _path(name), query=query).status == 204

    def worker(self) -> Mapping[str, Any] | None:
        """The worker that runs the pipelines; None if there is none."""
        try:
            found: Mapping[str, Any] | None = self.http.get_json(WORKER)["worker"]
        except (KeyError, TypeError) as error:
            raise _bad(error) from None
        return found

    # --- for the worker, which decides itself what to do when it is not answered

    def identify(self, token: str) -> None:
        """Send `token`, by which the server recognises its worker, from now on."""
        self._worker.login = Login(ca=self._worker.login.ca, token=token)

    def take_lease(self, worker: str, host: str, pid: int, place: str) -> Lease | None:
        """Become the worker; None while there is another one."""
        body = {"worker": worker, "host": host, "pid": pid, "place": place}
        try:
            answer = self._worker.send_json("POST", WORKER + "/lease", body)
        except Refused as error:
            if error.code == WORKER_BUSY:
                return None
            raise
        try:
            roots = tuple(map(str, answer["table_roots"]))
            return Lease(answer["epoch"], answer["lease_s"], answer["bootstrap"], roots)
        except (KeyError, TypeError) as error:
            raise _bad(error) from None

    def orders(
        self, worker: str, epoch: int, version: str, wait_ms: int
    ) -> tuple[str, list[Pipeline] | None]:
        """The version of the list of pipelines, and the list; None for the list if its version stays `version` for
        `wait_ms`.
        """
        body = {"worker": worker, "epoch": epoch, "version": version, "wait_ms": wait_ms}
        answer = self._worker.send_json("POST", WORKER + "/orders", body)
        try:
            rows = answer["pipelines"]
            return answer["version"], None if rows is None else [_pipeline(row) for row in rows]
        except (KeyError, TypeError) as error:
            raise _bad(error) from None

    def tokens(self, worker: str, epoch: int, names: Sequence[str]) -> tuple[Mapping[str, str], float]:
        """The tokens with which queries of these pipelines act for their owners, and for how many seconds they are
        valid.
        """
        body = {"worker": worker, "epoch": epoch, "pipelines": list(names)}
        answer = self._worker.send_json("POST", WORKER + "/tokens", body)
        try:
            return dict(answer["tokens"]), float(answer["life_s"])
        except (KeyError, TypeError, ValueError):
            raise BadAnswer(
                "the server's answer about tokens is not understood: is it another version?"
            ) from None

    def report(
        self,
        worker: str,
        epoch: int,
        pipelines: Mapping[str, Mapping[str, Any]],
        about: Mapping[str, Any],
        trouble: str = "",
    ) -> None:
        """Report the state of pipelines: {name: {id, run, state, reason, status}}; `trouble` is the reason why none
        can run.
        """
        body = {
            "worker": worker,
            "epoch": epoch,
            "pipelines": pipelines,
            "about": about,
            "trouble": trouble,
        }
        self._worker.send_json("POST", WORKER + "/report", body)

    def end(self, worker: str, epoch: int) -> None:
        """End the lease, because everything is stopped, so that another worker need not wait."""
        self._worker.send_json("POST", WORKER + "/end", {"worker": worker, "epoch": epoch})


def _path(name: str) -> str:
    return f"{PIPELINES}/{quote(name, safe='')}"


def _row(row: Any) -> Row:
    return Row(
        name=row["name"],
        kind=row["kind"],
        desired=row["desired"],
        state=row["state"],
        reason=row["reason"],
        lag=row["lag"],
        lag_s=row["lag_s"],
        rows=row["rows"],
        bytes=row["bytes"],
        rows_per_second=row["rows_per_second"],
        errors=row["errors"],
        restarts=row["restarts"],
        last_error=row["last_error"],
    )


def _pipeline(row: Any) -> Pipeline:
    try:
        return Pipeline(
            name=row["name"],
            id=row["id"],
            kind=row["kind"],
            config=row["config"],
            desired=row["desired"],
            run=row["run"],
            subscription=row["subscription"],
            created_ms=row.get("created_ms", 0),
            owner=row.get("owner", ""),
            # The worker's orders do not have these.
            state=row.get("state", ""),
            reason=row.get("reason", ""),
            status=row.get("status", {}),
        )
    except (KeyError, TypeError) as error:
        raise _bad(error) from None


def _bad(error: Exception) -> BadAnswer:
    return BadAnswer(
        f"the server's answer about pipelines is not understood ({error}): is it another version?"
    )
