"""All kinds of hostile clients at once, for as long as a test may take: the soak test's, in short."""

from magnetar.testing.server import MagnetarProcess
from tests.soak.hostile import SETTINGS, Trial


def test_a_server_beside_hostile_clients_serves_others_keeps_its_limits_and_stops() -> None:
    # The normal client was not answered for half a minute, nor was /health, and SIGTERM did not end the server.
    with MagnetarProcess(settings=SETTINGS) as server:
        Trial(server, seed=1).run(quiet_s=0.5, hostile_s=8)
