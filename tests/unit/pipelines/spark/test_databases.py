"""Which databases pipelines may use is what the worker's owner has written, and no word of a pipeline changes that."""

import zipfile
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.pipelines.spark.databases import Databases

URL = "jdbc:some://db/orders"


@pytest.fixture
def databases(tmp_path: Path) -> Databases:
    return Databases(tmp_path)


def name(databases: Databases, text: str) -> None:
    (databases.folder / "databases.toml").write_text(text)


def jar(
    databases: Databases,
    file: str = "some-1.2.jar",
    services: str | None = "# drivers\n\norg.some.Driver # it\n",
) -> None:
    with zipfile.ZipFile(databases.folder / file, "w") as made:
        made.writestr("x", "")
        if services is not None:
            made.writestr("META-INF/services/java.sql.Driver", services)


def test_a_database_has_the_driver_that_its_jar_names(databases: Databases) -> None:
    jar(databases)
    name(databases, f'[orders]\nurl = "{URL}"\ndriver = "some-1.2.jar"\nuser = "u"\npassword = "p"\n')
    found = databases.find("orders")
    assert found.options(None, None) == {
        "url": URL,
        "driver": "org.some.Driver",
        "user": "u",
        "password": "p",
    }
    assert "p" not in repr(found).partition("user")[2]
    assert URL not in repr(found)


def test_the_user_of_a_pipeline_goes_without_the_password_of_the_owner(databases: Databases) -> None:
    name(databases, f'[orders]\nurl = "{URL}"\nclass = "org.some.Other"\nuser = "u"\npassword = "p"\n')
    found = databases.find("orders")
    assert found.options("mine", "secret")["password"] == "secret"
    assert found.options("mine", None) == {"url": URL, "driver": "org.some.Other", "user": "mine"}


def test_spark_loads_the_jars_of_the_folder_and_nothing_else(databases: Databases) -> None:
    assert Databases(databases.folder / "none").jars() == []
    jar(databases)
    for other in ("notes.txt", "-x.jar", "a,b.jar", ".hidden.jar"):
        (databases.folder / other).touch()
    assert databases.jars() == [str(databases.folder / "some-1.2.jar")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no pipeline can use a database here: name it in"),
        ("[orders", "cannot be read"),
        ("", "has no database 'orders': there are none"),
        ("[order]\n", "did you mean order?"),
        ("[orders]\nurl = 1", "url of orders must be one of"),
        ("[orders]\nurls = 'jdbc:x'", "urls of orders must be one of"),
        ("[orders]\nurl = 'http://x'", "must begin with jdbc:"),
        ("[orders]\nurl = 'jdbc:x'", "must be the name of a jar"),
        ("[orders]\nurl = 'jdbc:x'\ndriver = '../some-1.2.jar'", "must be the name of a jar"),
        ("[orders]\nurl = 'jdbc:x'\ndriver = 'other.jar'", "there is no other.jar beside it"),
        ("[orders]\nurl = 'jdbc:x'\ndriver = 'silent.jar'", "does not say which driver it has: set class"),
        ("[orders]\nurl = 'jdbc:x'\ndriver = 'empty.jar'", "does not say which driver it has: set class"),
        ("[orders]\nurl = 'jdbc:x'\ndriver = 'broken.jar'", "does not say which driver it has: set class"),
    ],
)
def test_what_is_wrong_is_one_sentence(databases: Databases, text: str | None, said: str) -> None:
    jar(databases)
    jar(databases, "silent.jar", None)
    jar(databases, "empty.jar", "# none\n")
    (databases.folder / "broken.jar").write_text("no archive")
    if text is not None:
        name(databases, text)
    with pytest.raises(ConfigError) as caught:
        databases.find("orders")
    assert said in str(caught.value)
