"""One server with TLS at both doors for each module, and the certificates of it and of its clients."""

import shutil
from collections.abc import Iterator

import pytest

from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess
from tests.integration.quiet_log import assert_quiet

from .secured import Secured


@pytest.fixture(scope="session", autouse=True)
def needs_openssl() -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl program")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"), "Another authority")


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[Secured]:
    one = Secured(authority)
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one


@pytest.fixture(autouse=True)
def clean_log(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "secured" in request.fixturenames:
        assert_quiet(request.getfixturevalue("secured").server.log)
