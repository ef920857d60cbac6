"""How to reach a Pulsar cluster: settings of `--source-config`, as Pulsar's tools have them in `client.conf`.

webServiceUrl=https://pulsar:8443
authPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
authParams=file:///run/secrets/token
tlsTrustCertsFilePath=/etc/pulsar/ca.pem
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from magnetar.base.errors import ConfigError
from magnetar.client.login import Login

ADMIN: Final = "webServiceUrl"
PLUGIN: Final = "authPlugin"
PARAMETERS: Final = "authParams"
TRUSTED: Final = "tlsTrustCertsFilePath"
_NAMES: Final = (ADMIN, PLUGIN, PARAMETERS, TRUSTED)
_OF_TOKENS: Final = ("org.apache.pulsar.client.impl.auth.AuthenticationToken", "token")
_GIVEN: Final = "token:"
_FILE: Final = "file:"
_SCHEMES: Final = ("http://", "https://")


class Settings(NamedTuple):
    """`login` is for both ports; `admin_url` is the address of the admin API, empty if it is not known."""

    login: Login
    admin_url: str


def settings_of(given: Mapping[str, str], admin_url: str = "") -> Settings:
    """What a file of settings says; `admin_url`, unless it is empty, is used instead of the file's.

    Raises:
        ConfigError: it has other settings, or a login that is none.  The text has no secret.
    """
    for name, value in given.items():
        if name not in _NAMES and value:
            raise ConfigError(
                f"{name[:100]} is no setting for a source of Pulsar's: it takes {', '.join(_NAMES)}"
            )
    url = (admin_url or given.get(ADMIN, "")).rstrip("/")
    if url and (not url.startswith(_SCHEMES) or "@" in url):
        raise ConfigError("the address of the source's admin API looks like http://host:8080, without a user")
    plugin, parameters = given.get(PLUGIN, ""), given.get(PARAMETERS, "")
    if plugin and plugin not in _OF_TOKENS:
        raise ConfigError(f"{PLUGIN} can only be {_OF_TOKENS[0]}: the command logs in with a token")
    if parameters and not parameters.startswith((_GIVEN, _FILE)):
        raise ConfigError(f"{PARAMETERS} must begin with {_GIVEN} or {_FILE}//")
    login = Login(ca=given.get(TRUSTED, ""), token=parameters.removeprefix(_GIVEN))
    if login.token and not plugin:
        raise ConfigError(f"{PARAMETERS} has a token: say {PLUGIN}={_OF_TOKENS[0]}, too")
    login.trusting()
    return Settings(login, url)
