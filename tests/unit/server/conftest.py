"""What the tests of TLS share."""

import shutil

import pytest

from magnetar.testing.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl program")
    return Authority(tmp_path_factory.mktemp("authority"))
