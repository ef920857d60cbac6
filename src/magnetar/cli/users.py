"""`magnetar users`: users of SCRAM, who log in with a password.

A password is never an argument, because other users of the machine can see arguments: it comes from the terminal, a
file or a command.
"""

import getpass
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from magnetar.base.commands import printed_by
from magnetar.base.errors import ConfigError
from magnetar.cli.output import Output, OutputOption, print_json, print_table
from magnetar.cli.reaching import with_cluster
from magnetar.client.kafka.cluster import Cluster
from magnetar.client.kafka.scram_users import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    ScramUser,
    delete_user,
    scram_users,
)
from magnetar.client.kafka.scram_users import set_password as set_scram_password

app = typer.Typer(help="Make, list and delete users of SCRAM, who have passwords.", rich_markup_mode=None)

PASSWORD_BYTES_MAX: Final = 4096
COMMAND_S_MAX: Final = 120.0  # the command may ask its user for something
ITERATIONS_DEFAULT: Final = 8192
_STDIN: Final = "-"

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
Mechanism = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism", metavar="NAME", help=f"{' or '.join(MECHANISMS)}; can be given twice [both]."
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations",
        metavar="N",
        min=ITERATIONS_MIN,
        max=ITERATIONS_MAX,
        help=f"How often a client hashes [{ITERATIONS_DEFAULT}].",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file", metavar="FILE", help="A file that has the password; - is standard input."
    ),
]
PasswordCommand = Annotated[
    str, typer.Option("--password-command", metavar="COMMAND", help="A command that prints the password.")
]


@app.callback()
def root() -> None:
    """Make, list and delete users of SCRAM, who have passwords."""


@app.command("list")
@with_cluster
def list_users(
    cluster: Cluster,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="These users only.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List users of SCRAM, and how they log in."""
    found = scram_users(cluster, names or ())
    if output is Output.JSON:
        print_json([{"name": one.name, "mechanisms": dict(one.iterations)} for one in found])
        return
    rows = [(one.name, mechanism, str(count)) for one in found for mechanism, count in one.iterations.items()]
    print_table(("user", "mechanism", "iterations"), rows, numbers=("iterations",))


@app.command()
@with_cluster
def create(
    cluster: Cluster,
    name: Name,
    mechanism: Mechanism = None,
    iterations: Iterations = ITERATIONS_DEFAULT,
    password_file: PasswordFile = None,
    password_command: PasswordCommand = "",
) -> None:
    """Create a user; the command asks for the password, unless a file or a command has it."""
    mechanisms = _mechanisms(mechanism) or MECHANISMS
    if scram_users(cluster, [name]):
        raise ConfigError(
            f"there is a user {name!r} already: `magnetar users set-password` changes the password"
        )
    password = _password(password_file, password_command)
    set_scram_password(cluster, name, password, mechanisms, iterations)
    print(f"{name} logs in by {' and '.join(mechanisms)}", file=sys.stderr)


@app.command("set-password")
@with_cluster
def set_password(
    cluster: Cluster,
    name: Name,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism", metavar="NAME", help=f"{' or '.join(MECHANISMS)} [those that the user has]."
        ),
    ] = None,
    iterations: Iterations = ITERATIONS_DEFAULT,
    password_file: PasswordFile = None,
    password_command: PasswordCommand = "",
) -> None:
    """Change a user's password, for later logins."""
    mechanisms = _mechanisms(mechanism) or tuple(_existing(cluster, name).iterations)
    password = _password(password_file, password_command)
    set_scram_password(cluster, name, password, mechanisms, iterations)
    print(f"{name} logs in by {' and '.join(mechanisms)} with it", file=sys.stderr)


@app.command()
@with_cluster
def delete(cluster: Cluster, name: Name, mechanism: Mechanism = None) -> None:
    """Delete a user; its present connections continue."""
    delete_user(cluster, name, _mechanisms(mechanism) or _existing(cluster, name).iterations)


def _existing(cluster: Cluster, name: str) -> ScramUser:
    found = scram_users(cluster, [name])
    if not found:
        raise ConfigError(f"there is no user {name!r} of SCRAM: `magnetar users list` shows all")
    return found[0]


def _mechanisms(given: list[str] | None) -> tuple[str, ...]:
    named = tuple(dict.fromkeys(one.upper() for one in given or ()))
    unknown = [one for one in named if one not in MECHANISMS]
    if unknown:
        raise ConfigError(f"--mechanism is {' or '.join(MECHANISMS)}, not {unknown[0][:50]!r}")
    return named


def _password(file: Path | None, command: str) -> str:
    """The password.  Raises ConfigError, OSError, whose texts never contain it."""
    if file is not None and command:
        raise ConfigError("--password-file and --password-command both have the password: keep one")
    if file is not None:
        source = sys.stdin.buffer if str(file) == _STDIN else file.open("rb")
        with source:
            given = source.read(PASSWORD_BYTES_MAX + 3)
    elif command:
        given = printed_by(command, "the password's command", seconds_max=COMMAND_S_MAX, may_ask=True)
    elif sys.stdin.isatty():
        given = getpass.getpass("Password: ").encode()
        if getpass.getpass("The same again: ").encode() != given:
            raise ConfigError("the two passwords are not the same")
    else:
        raise ConfigError(
            "there is no terminal to ask for the password at: say --password-file or --password-command"
        )
    line = given.removesuffix(b"\n").removesuffix(b"\r")
    try:
        password = line.decode()
    except UnicodeDecodeError:
        raise ConfigError("the password is no text in UTF-8") from None
    if not password or len(line) > PASSWORD_BYTES_MAX or not password.isprintable():
        raise ConfigError(f"a password is one line, of {PASSWORD_BYTES_MAX} bytes at most, and not empty")
    return password
