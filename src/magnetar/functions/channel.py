"""What an instance and the server say to each other: lines of JSON on two pipes.

The first line that the server writes is the instance's orders.  After that it answers the instance's questions about
the function's state, and triggers the function.  If the server's end closes, the server has ended, and so does the
instance.

What the function itself prints goes to the instance's log, and what it reads is empty.
"""

import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

_OUT: Final = 1
_ERRORS: Final = 2


class StateRefused(Exception):
    """The server refuses what a function asks of its state."""


class Channel:
    """See the module's text."""

    def __init__(self) -> None:
        self._in = os.fdopen(os.dup(0), "rb")
        self._out = os.fdopen(os.dup(_OUT), "wb", buffering=0)
        os.dup2(_ERRORS, _OUT)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self._writing = threading.Lock()
        self._answered = threading.Condition()
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._asked = 0

    def orders(self) -> Mapping[str, Any]:
        """The first line."""
        found: Mapping[str, Any] = json.loads(self._in.readline())
        return found

    def listen(self, trigger: Callable[[Mapping[str, Any]], None]) -> None:
        """Take answers from now on, and call `trigger` with what the server wants to be triggered."""
        threading.Thread(target=self._listen, args=(trigger,), name="server", daemon=True).start()

    def say(self, kind: str, content: object) -> None:
        line = json.dumps({kind: content}).encode() + b"\n"
        with self._writing:
            self._out.write(line)

    def ask(self, verb: str, key: str, value: object = None) -> Any:
        """Ask for the state of a key, or change it; return when the change is durable.  Raises StateRefused."""
        with self._answered:
            self._asked += 1
            number = self._asked
        self.say("state", {"id": number, "verb": verb, "key": key, "value": value})
        with self._answered:
            self._answered.wait_for(lambda: number in self._answers)
            answer = self._answers.pop(number)
        if "error" in answer:
            raise StateRefused(str(answer["error"]))
        return answer.get("value")

    def _listen(self, trigger: Callable[[Mapping[str, Any]], None]) -> None:
        for line in self._in:
            answer = json.loads(line)
            if "trigger" in answer:
                trigger(answer["trigger"])
                continue
            with self._answered:
                self._answers[answer["id"]] = answer
                self._answered.notify_all()
        os._exit(0)  # the function's own threads do not keep an instance without its server
