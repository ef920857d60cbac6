"""The load that `make bench` makes of logins is logins: SCRAM to its end, refused with a wrong password."""

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from bench.logins import Logins
from bench.process import RunFailed

from .guarded import Guarded
from .test_clients_log_in_by_scram import alter

pytestmark = pytest.mark.clients


def test_logins_of_the_bench_prove_a_password(guarded: Guarded) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    alter(guarded, UserScramCredentialUpsertion("bench", info, b"bench-secret"))
    assert Logins("127.0.0.1", guarded.sasl, "bench", "bench-secret").run(count=7, at_once=3) > 0
    with pytest.raises(RunFailed, match="error 58"):
        Logins("127.0.0.1", guarded.sasl, "bench", "wrong-secret").run(count=1, at_once=1)
