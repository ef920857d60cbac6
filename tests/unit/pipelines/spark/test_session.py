import os
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.pipelines.spark import daemon, session

SOURCE = Path(session.__file__).parents[3]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a builder sets goes away with the test."""
    for name in ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP", "PYTHONPATH"):
        monkeypatch.setenv(name, "set by the test")
        monkeypatch.delenv(name)


def options(**arguments: object) -> dict[str, str]:
    return dict(session.builder("test", **arguments)._options)  # type: ignore[arg-type]


@pytest.mark.usefixtures("environment")
class TestBuilder:
    def test_every_tuned_setting_is_made(self) -> None:
        made = options(memory="2g", shuffle_partitions=2)
        assert session.SETTINGS.items() <= made.items()
        assert made["spark.driver.memory"] == "2g"
        assert made["spark.sql.shuffle.partitions"] == "2"
        assert Path(made["spark.driver.extraJavaOptions"].strip('"').partition("=")[2]).is_file()

    def test_the_callers_settings_win(self) -> None:
        assert options(settings={"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"

    @pytest.mark.parametrize(
        ("master", "used"),
        [
            (None, "local[*,4]"),
            ("local", "local[1,4]"),
            ("local[2]", "local[2,4]"),
            ("local[2,1]", "local[2,1]"),
            ("spark://host:7077", "spark://host:7077"),
        ],
    )
    def test_local_tasks_are_retried_as_on_a_cluster(self, master: str | None, used: str) -> None:
        assert options(master=master)["spark.master"] == used

    def test_the_environment_names_java_python_and_this_package(self) -> None:
        options()
        assert (Path(os.environ["JAVA_HOME"]) / "bin" / "java").exists()
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert str(SOURCE) in os.environ["PYTHONPATH"].split(os.pathsep)
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"

    def test_workers_of_a_cluster_elsewhere_can_reach_the_driver(self) -> None:
        options(master="spark://10.0.0.7:7077")
        assert "SPARK_LOCAL_IP" not in os.environ

    def test_another_spark_of_the_users_is_not_mixed_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import pyspark

        monkeypatch.setenv("SPARK_HOME", "/opt/spark-3.5")
        options()
        jars = Path(os.environ["SPARK_HOME"]) / "jars"
        assert jars.samefile(Path(pyspark.__file__).parent / "jars")

    def test_without_spark_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(session, "find_spec", lambda name: None)
        with pytest.raises(ConfigError, match=r"pip install 'magnetar\[spark\]'"):
            session.builder("test")


class TestSparkHome:
    def make_package(self, folder: Path) -> Path:
        for name in ("bin", "jars", "python"):
            (folder / name).mkdir(parents=True)
        return folder

    def test_it_is_the_package_without_its_zip(self, tmp_path: Path) -> None:
        package = self.make_package(tmp_path / "pyspark")
        homes = {session._spark_home(package, tmp_path / "cache") for _ in range(2)}
        (home,) = homes
        assert sorted(part.name for part in home.iterdir()) == ["bin", "jars"]
        assert (home / "jars").samefile(package / "jars")

    def test_a_link_that_leads_elsewhere_is_made_again(self, tmp_path: Path) -> None:
        package = self.make_package(tmp_path / "pyspark")
        home = session._spark_home(package, tmp_path / "cache")
        (home / "jars").unlink()
        (home / "jars").symlink_to(tmp_path)
        assert (session._spark_home(package, tmp_path / "cache") / "jars").samefile(package / "jars")

    def test_without_a_cache_it_is_the_package(self, tmp_path: Path) -> None:
        package = self.make_package(tmp_path / "pyspark")
        (tmp_path / "cache").touch()
        assert session._spark_home(package, tmp_path / "cache") == package


class TestDaemon:
    def make_spark(self, folder: Path) -> tuple[Path, Path]:
        """An installed pyspark and the zip that belongs to it."""
        (folder / "pyspark" / "python" / "lib").mkdir(parents=True)
        (folder / "pyspark" / "__init__.py").touch()
        archive = folder / "pyspark" / "python" / "lib" / "pyspark.zip"
        archive.touch()
        return folder, archive

    def test_the_zip_of_the_installed_spark_is_left_out(self, tmp_path: Path) -> None:
        installed, archive = self.make_spark(tmp_path / "site")
        assert daemon.without_zip(["", str(archive), str(installed)]) == ["", str(installed)]

    def test_the_zip_of_another_spark_stays(self, tmp_path: Path) -> None:
        installed, _ = self.make_spark(tmp_path / "site")
        _, archive = self.make_spark(tmp_path / "other")
        path = [str(archive), str(installed)]
        assert daemon.without_zip(path) == path

    def test_the_zip_stays_when_nothing_else_has_spark(self, tmp_path: Path) -> None:
        _, archive = self.make_spark(tmp_path / "site")
        path = [str(archive), str(tmp_path)]
        assert daemon.without_zip(path) == path

    def test_it_serves_as_sparks_daemon_until_its_input_ends(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHON_WORKER_FACTORY_SECRET": "x"}
        done = subprocess.run(
            [sys.executable, "-m", session.SETTINGS["spark.python.daemon.module"], "pyspark.worker"],
            input=b"",
            capture_output=True,
            env=environment,
            timeout=60,
        )
        assert done.stderr == b""
        (port,) = struct.unpack("!i", done.stdout)
        assert 0 < port < 65536

    @pytest.mark.parametrize("name", daemon._OURS)
    def test_what_it_imports_for_workers_is_there(self, name: str) -> None:
        assert find_spec(name) is not None

    def test_a_worker_that_spark_does_not_listen_to_ends_quietly(self) -> None:
        def worker(how: Exception | int) -> int:
            if isinstance(how, Exception):
                raise how
            return how

        serve = daemon.quiet(worker)
        assert [serve(BrokenPipeError()), serve(ConnectionResetError()), serve(0), serve(7)] == [1, 1, 0, 7]
        with pytest.raises(ValueError, match="something else"):
            serve(ValueError("something else"))
