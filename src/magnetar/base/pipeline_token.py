"""The token by which a pipeline's query logs in as its owner, and how the server and the worker recognise one.

The server makes these tokens (`broker/jobs/owner_tokens.py`); a client that shows one sends no other credentials.  Over
HTTP it is a bearer token.  At Kafka's port it is all there is in the one message of a SASL mechanism of our own, which
every listener takes and none offers.
"""

from typing import Final

PREFIX: Final = "magnetar-pipeline."
MECHANISM: Final = "MAGNETAR-PIPELINE"
TOKEN_BYTES_MAX: Final = 512
KEY_LABEL: Final = (
    b"magnetar: tokens of pipelines"  # what their key is derived under, from the worker's token
)


def is_pipeline_token(token: str) -> bool:
    return token.startswith(PREFIX)
