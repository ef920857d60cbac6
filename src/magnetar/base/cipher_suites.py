"""Suites of TLS by the names that IANA has for them, and so Java, Kafka and Pulsar; and by OpenSSL's.

Those of TLS 1.2 can be chosen one by one.  Those of TLS 1.3 cannot: Python's `ssl` has no word for it, and OpenSSL
offers all three.  A list that has some of them is refused, so that none is used that the list leaves out.

Not in the table are suites whose keys come from DHE, which takes parameters that no setting of Kafka has, and suites of
DSA.  Suites that OpenSSL does not take any more are not in it either (RC4, 3DES, NULL, static ECDH).
"""

from typing import Final

from magnetar.base.config import closest
from magnetar.base.errors import ConfigError

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
TLS_VERSIONS: Final = (TLS_1_2, TLS_1_3)
SUITES_OF_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
SUITES_OF_1_2: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}


def choose_suites(setting: str, text: str, versions: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Which of `versions` are spoken with the suites of a list, and those of TLS 1.2 as OpenSSL's own list.

    As in Kafka, a version that has none in the list is not spoken.  An empty list leaves all to OpenSSL.

    Raises:
        ConfigError: a suite is not served, or no version is left; `setting` has the list.
    """
    names = [one.strip() for one in text.split(",") if one.strip()]
    if not names:
        return versions, ""
    for one in names:
        if one not in SUITES_OF_1_2 and one not in SUITES_OF_1_3:
            meant = closest(one, [*SUITES_OF_1_3, *SUITES_OF_1_2])
            hint = f": did you mean {meant}?" if meant is not None else ""
            raise ConfigError(f"{setting} has {one[:100]!r}, which is no suite that is served{hint}")
    new = [one for one in SUITES_OF_1_3 if one in names]
    old = [SUITES_OF_1_2[one] for one in names if one in SUITES_OF_1_2]
    if new and len(new) < len(SUITES_OF_1_3):
        raise ConfigError(
            f"{setting} has some suites of TLS 1.3, which can be had together only: name all of"
            f" {', '.join(SUITES_OF_1_3)}, or none"
        )
    spoken = tuple(one for one in versions if (new if one == TLS_1_3 else old))
    if not spoken:
        raise ConfigError(
            f"{setting} has no suite of {' or '.join(versions)}, and no other version is spoken"
        )
    return spoken, ":".join(old)
