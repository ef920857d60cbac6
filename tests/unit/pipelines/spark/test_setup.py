"""Spark installed on demand, by a real pip from a folder of tiny wheels into an environment of its own."""

import base64
import hashlib
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import magnetar
from magnetar.pipelines.spark import setup
from magnetar.pipelines.spark.setup import MODULES, SetupFailed

SOURCE = Path(magnetar.__file__).parent.parent

# Where magnetar is installed as a package, its metadata say what the extra is.
METADATA = "Metadata-Version: 2.1\nName: magnetar\nVersion: 9\nRequires-Dist: typing-x>=1\n" + "".join(
    f"Requires-Dist: {name}>=1; extra == 'spark'\n" for name in MODULES
)


def make_wheel(folder: Path, name: str, version: str, content: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    information = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": content,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        f"{len(text)}\n"
        for path, text in files.items()
    )
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{information}/RECORD", f"{record}{information}/RECORD,,\n")
    return path


class Usage:
    """Of a disk."""

    def __init__(self, free: int) -> None:
        self.free = free


class Environment:
    """A virtual environment with pip, in which this tree's code runs as an installed package would."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder, self.wheels = folder, wheels
        self.python = folder / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = folder / "lib" / version / "site-packages"

    def start(self, **environment: str) -> "subprocess.Popen[str]":
        """A process that ensures Spark and prints what is announced."""
        code = (
            "from magnetar.pipelines.spark import setup\n"
            "try:\n"
            "    print('installed:', setup.ensure_spark(print, setup.plan_installation()), flush=True)\n"
            "except setup.SetupFailed as error:\n"
            "    print('failed:', error)\n"
        )
        variables = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "PYTHON"))},
            "PYTHONPATH": str(self.folder / "ours"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
            **environment,
        }
        return subprocess.Popen(
            [self.python, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=variables,
        )

    def ensure(self, **environment: str) -> str:
        with self.start(**environment) as process:
            said, _ = process.communicate(timeout=100)
        return said


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("setup")
    wheels = folder / "wheels"
    for name in MODULES:
        make_wheel(wheels, name, "2.0")
    venv.create(folder / "env", with_pip=True)
    environment = Environment(folder / "env", wheels)
    # Behind a link, the package is not in a checkout: what it needs is read from its metadata.
    (environment.folder / "ours").mkdir()
    (environment.folder / "ours" / "magnetar").mkdir()
    for part in ("__init__.py", "base"):
        (environment.folder / "ours" / "magnetar" / part).symlink_to(SOURCE / "magnetar" / part)
    pipelines = environment.folder / "ours" / "magnetar" / "pipelines"
    (pipelines / "spark").mkdir(parents=True)
    for part in ("__init__.py", "spark/__init__.py", "spark/setup.py"):
        (pipelines / part).write_bytes((SOURCE / "magnetar" / "pipelines" / part).read_bytes())
    information = environment.site / "magnetar-9.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(METADATA)
    (information / "RECORD").touch()
    return environment


@pytest.fixture
def environment(made: Environment) -> Iterator[Environment]:
    """The environment without any of what is to be installed."""
    yield made
    names = [name for name in MODULES if list(made.site.glob(f"{name}-*.dist-info/RECORD"))]
    if names:
        command = [str(made.python), "-m", "pip", "uninstall", "-q", "-y", *names]
        subprocess.run(command, check=True, capture_output=True)
    for left in (*made.site.glob(".magnetar-*"), *made.site.glob("pyspark*/*"), *made.site.glob("pyspark*")):
        left.rmdir() if left.is_dir() else left.unlink()


@pytest.mark.slow
@pytest.mark.timeout(400)  # an environment is made, and pip run many times
class TestWithPip:
    def test_what_is_missing_is_installed_and_said(self, environment: Environment) -> None:
        said = environment.ensure()
        assert "installed: True" in said
        assert "MB to download" in said
        assert "Spark is installed" in said
        assert all((environment.site / name / "__init__.py").exists() for name in MODULES)
        assert [left.name for left in environment.site.glob(".magnetar-*")] == [".magnetar-spark.lock"]
        assert environment.ensure() == "installed: False\n"

    def test_two_at_once_install_it_once(self, environment: Environment) -> None:
        with environment.start() as first, environment.start() as second:
            said = [process.communicate(timeout=100)[0] for process in (first, second)]
        assert sorted("installed: True" in one for one in said) == [False, True]
        assert sum("waiting for it" in one for one in said) <= 1
        assert all("failed" not in one for one in said), said

    def test_an_installation_that_was_cut_off_is_done_again(self, environment: Environment) -> None:
        # What pip leaves when it is killed: files and metadata, and no list of what was written.
        half = environment.site / "pyspark-2.0.dist-info"
        half.mkdir()
        (half / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 2.0\n")
        (environment.site / "pyspark").mkdir()
        (environment.site / "pyspark" / "__init__.py").write_text("half of it")
        (environment.site / ".magnetar-spark.installing").touch()
        (environment.site / ".magnetar-spark.tmp" / "pip-unpack-x").mkdir(parents=True)
        said = environment.ensure()
        assert "was cut off" in said
        assert "installed: True" in said
        assert (environment.site / "pyspark" / "__init__.py").read_text() == ""
        assert [left.name for left in environment.site.glob(".magnetar-*")] == [".magnetar-spark.lock"]

    def test_no_network_is_said_as_such(self, environment: Environment) -> None:
        said = environment.ensure(
            PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="1"
        )
        assert "failed: Spark could not be installed: the package index cannot be reached" in said
        assert (environment.site / ".magnetar-spark.installing").exists()

    def test_what_the_index_does_not_have_is_said_in_pips_words(
        self, environment: Environment, tmp_path: Path
    ) -> None:
        said = environment.ensure(PIP_FIND_LINKS=str(tmp_path))
        assert "failed: Spark could not be installed: No matching distribution found for" in said
        assert said.count("\n") == 2

    def test_without_pip_and_uv_it_says_how_to_get_one(self, environment: Environment) -> None:
        hidden = environment.site / "pip"
        hidden.rename(environment.site / "no-pip")
        try:
            said = environment.ensure(PATH="/nowhere")
        finally:
            (environment.site / "no-pip").rename(hidden)
        assert "failed: Spark is not installed, and this environment has neither pip nor uv" in said


class TestPlan:
    def test_a_checkout_is_installed_from_its_pins(self) -> None:
        plan = setup.plan_installation()
        assert plan.arguments[0] == "--require-hashes"
        assert Path(plan.arguments[-1]).name == "spark.txt"
        assert plan.names == tuple(sorted(MODULES))

    def test_the_extra_is_read_from_metadata(self) -> None:
        assert setup._extra_of(
            [
                "numpy>=2.0",
                "pyspark~=4.3.0; extra == 'spark'",
                'x>=1 ; python_version < "3.12" and extra == "spark"',
                "mypy; extra == 'dev'",
            ]
        ) == ["pyspark~=4.3.0", 'x>=1 ; python_version < "3.12"']

    def test_the_modules_are_those_of_the_extra(self) -> None:
        project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]
        named = [re.split("[~=<>]", one)[0] for one in project["optional-dependencies"]["spark"]]
        of_pandas = "python-dateutil"  # named for its version alone
        assert sorted(named) == sorted((*MODULES, of_pandas))


class TestBeforehand:
    def test_an_environment_that_cannot_be_written_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(setup, "is_installed", lambda: False)
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(SetupFailed, match="cannot be written to"):
            setup.ensure_spark(print)

    def test_a_disk_without_room_is_refused_before_anything_is_loaded(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(setup, "is_installed", lambda: False)
        monkeypatch.setattr(setup, "_site", lambda: tmp_path)
        monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(100 << 20))
        with pytest.raises(SetupFailed, match="100 MB free"):
            setup.ensure_spark(print)
