"""What the keys of delegation tokens come to, and that their secret is shown nowhere."""

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.masking import HIDDEN
from magnetar.base.settings import load_settings
from magnetar.base.settings_delegation import DelegationTokenSettings
from magnetar.base.settings_secure import SECURE

SECRET = "delegation.token.secret.key=hunter2"
DAY_MS = 86_400_000


def test_there_are_none_without_a_secret_key() -> None:
    settings = load_settings(assignments=["delegation.token.max.lifetime.ms=5"])
    assert not settings.delegation_tokens.secret_key
    (notice,) = settings.notices
    assert notice.endswith(
        "delegation.token.max.lifetime.ms has no effect: delegation.token.secret.key is not set"
    )


def test_the_defaults_are_kafkas() -> None:
    settings = load_settings(assignments=[SECRET])
    assert settings.delegation_tokens == DelegationTokenSettings("hunter2", 7 * DAY_MS, DAY_MS, 3_600_000)
    assert DelegationTokenSettings("hunter2") == settings.delegation_tokens
    assert not settings.notices


def test_the_keys() -> None:
    keys = ("max.lifetime.ms=3", "expiry.time.ms=2", "expiry.check.interval.ms=1")
    settings = load_settings(assignments=[SECRET, *(f"delegation.token.{one}" for one in keys)])
    assert settings.delegation_tokens == DelegationTokenSettings("hunter2", 3, 2, 1)


@pytest.mark.parametrize("key", ["max.lifetime.ms", "expiry.time.ms", "expiry.check.interval.ms"])
def test_times_are_at_least_one_millisecond(key: str) -> None:
    with pytest.raises(ConfigError, match="must be at least 1"):
        load_settings(assignments=[SECRET, f"delegation.token.{key}=0"])


def test_the_secret_is_not_shown() -> None:
    settings = load_settings(assignments=[SECRET])
    assert settings.given["delegation.token.secret.key"].text == HIDDEN
    assert "hunter2" not in repr(settings)


def test_a_safe_server_may_have_them() -> None:
    settings = load_settings(assignments=[SECRET, f"{SECURE}=true"])
    assert settings.delegation_tokens.secret_key == "hunter2"
