"""SCRAM's mechanisms, and the errors of credentials, with Kafka's numbers."""

from collections.abc import Mapping
from typing import Final

from magnetar.base.settings_sasl import SCRAM_SHA_256, SCRAM_SHA_512
from magnetar.broker.usecases.scram import ScramProblem
from magnetar.wire.kafka.error_codes import ErrorCode

MECHANISMS: Final[Mapping[int, str]] = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
PROBLEMS: Final[Mapping[ScramProblem | None, ErrorCode]] = {
    None: ErrorCode.NONE,
    ScramProblem.UNACCEPTABLE: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    ScramProblem.UNKNOWN_MECHANISM: ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ScramProblem.NOT_FOUND: ErrorCode.RESOURCE_NOT_FOUND,
    ScramProblem.TWICE: ErrorCode.DUPLICATE_RESOURCE,
}
