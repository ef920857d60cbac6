"""The process of a function's instance with a bug: it acknowledges a message before the output of it is stored."""

import os
import sys
from typing import Any

from magnetar.functions import runner
from magnetar.functions.processing import Processing


def _plant() -> None:
    called = Processing._called

    def called_and_acknowledged(self: Processing, taken: Any, *rest: Any) -> bytes | None:
        content = called(self, taken, *rest)
        taken.consumer.acknowledge(taken.message)
        return content

    setattr(Processing, "_called", called_and_acknowledged)  # noqa: B010 - mypy takes no other signature


if __name__ == "__main__":
    _plant()
    code = runner.main()
    sys.stderr.flush()
    os._exit(code)
