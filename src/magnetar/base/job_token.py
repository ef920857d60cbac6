"""The tokens by which a pipeline's query and a function's process log in as their owners, and how to recognise them.

Only the server makes these tokens (`broker/jobs/owner_tokens.py`, `broker/jobs/functions.py`); a client that shows one
sends no other credentials.  Over HTTP, and in Pulsar's protocol, it is a token like others.  At Kafka's port it is all
there is in the one message of a SASL mechanism of our own, which every listener accepts and none offers.
"""

from collections.abc import Mapping
from typing import Final

PIPELINE: Final = "pipeline"
FUNCTION: Final = "function"
PREFIXES: Final[Mapping[str, str]] = {PIPELINE: "magnetar-pipeline.", FUNCTION: "magnetar-function."}
MECHANISM: Final = "MAGNETAR-PIPELINE"
TOKEN_BYTES_MAX: Final = 512
KEY_LABEL: Final = (
    b"magnetar: tokens of pipelines"  # what their key is derived under, from the worker's token
)


def job_of(token: str) -> str:
    """The kind of job whose token this is (PIPELINE, FUNCTION), by how it begins; empty if it is another token."""
    return next((kind for kind, prefix in PREFIXES.items() if token.startswith(prefix)), "")


def is_pipeline_token(token: str) -> bool:
    return job_of(token) == PIPELINE
