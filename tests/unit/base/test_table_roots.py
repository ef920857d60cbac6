import os
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.table_roots import TableRoots


def roots(tmp_path: Path) -> TableRoots:
    return TableRoots.of(
        [str(tmp_path / "data" / "tables"), str(tmp_path / "other"), "s3://lake/team", "gs://all"]
    )


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("flights", "data/tables/flights"),
        ("a/b/../c", "data/tables/a/c"),
        ("{}/data/tables/flights", "data/tables/flights"),
        ("{}/other/x", "other/x"),
        ("{}/data/../other/x", "other/x"),
        ("file://{}/other/x", "other/x"),
        ("file:///{}/other/%78", "other/x"),
        ("FILE://{}/other/x", "other/x"),
    ],
)
def test_a_path_below_a_root_is_taken_without_links_and_dots(
    tmp_path: Path, path: str, resolved: str
) -> None:
    assert roots(tmp_path).resolve(path.format(tmp_path)) == os.path.realpath(tmp_path / resolved)


@pytest.mark.parametrize("url", ["s3://lake/team/table", "s3://lake/team/a/b/", "gs://all/x"])
def test_a_url_below_a_root_is_taken(tmp_path: Path, url: str) -> None:
    assert roots(tmp_path).resolve(url) == url


@pytest.mark.parametrize(
    "path",
    [
        "/etc",
        "/",
        "",
        ".",
        "..",
        "../metadata.sqlite",
        "{}/data/tables",
        "{}/data/tables/",
        "{}/data/tables/x/..",
        "{}/data/tables/../segments",
        "{}/data/tablesque/x",
        "{}/otherwise",
        "file:///etc/x",
        "FILE:///etc/x",
        "file://{}/other/%2e%2e/x",
        "x\0y",
        "s3://lake/teams/x",
        "s3://lake/team",
        "s3://lake/team/",
        "s3://lake/other",
        "s3://lake/team/../other",
        "s3://lake/team/%2e%2e/other",
        "s3://lake/team//x",
        "s3://me:password@lake/team/x",
        "s3://lake/team/x?a=b",
        "s3://lake/team/x#a",
        "s3://lake/team/x\\..\\y",
        "s3://lakes/team/x",
        "az://lake/team/x",
        "gs://all",
        "https://lake/team/x",
        "s3:///team/x",
    ],
)
def test_what_is_not_below_a_root_is_refused_in_one_sentence(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        roots(tmp_path).resolve(path.format(tmp_path))
    said = str(refused.value)
    assert said.startswith("path: ")
    assert "\n" not in said
    assert "password" not in said


def test_links_are_followed_before_it_is_decided(tmp_path: Path) -> None:
    inside, outside = tmp_path / "data" / "tables", tmp_path / "outside"
    for folder in (inside, outside, tmp_path / "other"):
        folder.mkdir(parents=True)
    (inside / "link").symlink_to(outside)
    (outside / "back").symlink_to(inside / "real")
    for path in ("link", "link/x", str(inside / "link" / "x")):
        with pytest.raises(ConfigError):
            roots(tmp_path).resolve(path)
    assert roots(tmp_path).resolve(str(outside / "back")) == os.path.realpath(inside / "real")
    # A root may be a link itself: what it leads to is meant.
    (tmp_path / "linked").symlink_to(outside)
    assert TableRoots.of([str(tmp_path / "linked")]).resolve("x") == os.path.realpath(outside / "x")


def test_without_a_root_nothing_is_taken() -> None:
    for path in ("x", "/tmp/x", "s3://lake/x"):
        with pytest.raises(ConfigError):
            TableRoots().resolve(path)


@pytest.mark.parametrize("root", ["relative", "s3://", "s3://u@lake", "s3://lake?x"])
def test_what_cannot_be_a_root_is_refused(root: str) -> None:
    with pytest.raises(ConfigError):
        TableRoots.of([root])
