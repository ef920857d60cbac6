"""Names of suites of TLS: what OpenSSL calls them, and what a list of them comes to."""

import shutil
import subprocess

import pytest

from magnetar.base.cipher_suites import SUITES_OF_1_2, SUITES_OF_1_3, TLS_VERSIONS, choose_suites
from magnetar.base.errors import ConfigError

OLD = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
OLDER = "TLS_RSA_WITH_AES_128_CBC_SHA"
NEW = ",".join(SUITES_OF_1_3)


def test_openssl_calls_them_so() -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl program")
    lines = subprocess.run(
        ["openssl", "ciphers", "-stdname", "ALL"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    said = {words[0]: words[2] for words in map(str.split, lines)}
    assert {name: said[name] for name in SUITES_OF_1_2} == SUITES_OF_1_2
    assert {name for name in said if said[name] == name} == set(SUITES_OF_1_3)


@pytest.mark.parametrize(
    ("listed", "versions", "spoken", "ciphers"),
    [
        ("", TLS_VERSIONS, TLS_VERSIONS, ""),
        (OLD, TLS_VERSIONS, ("TLSv1.2",), "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (NEW, TLS_VERSIONS, ("TLSv1.3",), ""),
        (f"{NEW},{OLD}", TLS_VERSIONS, TLS_VERSIONS, "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (f"{OLDER}, {OLD} ,", TLS_VERSIONS, ("TLSv1.2",), "AES128-SHA:ECDHE-ECDSA-AES256-GCM-SHA384"),
        (f"{NEW},{OLD}", ("TLSv1.2",), ("TLSv1.2",), "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (f"{NEW},{OLD}", ("TLSv1.3",), ("TLSv1.3",), "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ],
)
def test_a_version_without_a_suite_in_the_list_is_not_spoken(
    listed: str, versions: tuple[str, ...], spoken: tuple[str, ...], ciphers: str
) -> None:
    assert choose_suites("list", listed, versions) == (spoken, ciphers)


@pytest.mark.parametrize(
    ("listed", "versions", "sentence"),
    [
        ("TLS_NULL", TLS_VERSIONS, "^list has 'TLS_NULL', which is no suite that is served"),
        (
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA",
            TLS_VERSIONS,
            "did you mean TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        ),
        ("ECDHE-RSA-AES128-SHA", TLS_VERSIONS, "which is no suite that is served"),
        (SUITES_OF_1_3[0], TLS_VERSIONS, "^list has some suites of TLS 1.3, which can be had together only"),
        (
            f"{OLD},{SUITES_OF_1_3[2]},{SUITES_OF_1_3[1]}",
            TLS_VERSIONS,
            "name all of TLS_AES_256_GCM_SHA384, ",
        ),
        (OLD, ("TLSv1.3",), "^list has no suite of TLSv1.3, and no other version is spoken$"),
        (NEW, ("TLSv1.2",), "^list has no suite of TLSv1.2, and no other version is spoken$"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(listed: str, versions: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        choose_suites("list", listed, versions)
