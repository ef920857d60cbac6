"""What `pip install magnetar` brings without extras stays small: at most 60 MB of files, compiled code not counted.

The packages are those of the environment that runs the tests, whose versions are the ones that `requirements/run.txt`
pins.  What each of them takes is in docs/internals/benchmarks.md.
"""

from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import magnetar

BYTES_MAX = 60_000_000


def needed(name: str, found: dict[str, Distribution] | None = None) -> dict[str, Distribution]:
    """What pip installs for `name`: it, and what it requires without extras, at any distance."""
    found = {} if found is None else found
    if (key := canonicalize_name(name)) not in found:
        found[key] = distribution(name)
        for requirement in map(Requirement, found[key].requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed(requirement.name, found)
    return found


def size_bytes(installed: Distribution) -> int:
    """Bytes of the files that the package brings; of our own, which is installed in place, those of its sources."""
    if installed.metadata["Name"] == "magnetar":
        root = Path(magnetar.__file__).parent.parent
        paths = [path for folder in root.glob("*magnetar") for path in folder.rglob("*")]
    else:
        paths = [Path(str(file.locate())) for file in installed.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file() and "__pycache__" not in path.parts)


def test_an_installation_without_extras_stays_small() -> None:
    sizes = {name: size_bytes(installed) for name, installed in needed("magnetar").items()}
    assert all(sizes.values()), sizes
    assert sum(sizes.values()) <= BYTES_MAX, sorted(sizes.items(), key=lambda one: -one[1])


def test_what_is_required_is_counted_and_extras_are_not() -> None:
    names = needed("magnetar").keys()
    assert {"magnetar", "uvloop", "cryptography", "pygments"} <= names  # rich requires pygments
    assert not names & {"numba", "numpy", "pyspark", "boto3", "pydantic"}
