"""`magnetar tokens`: creates keys, and creates and inspects tokens.

It also has the verbs of Pulsar's `pulsar tokens`, with its options, which the help does not show: create-secret-key,
create-key-pair, validate, show.
"""

import base64
import sys
from pathlib import Path
from typing import Annotated

import typer

from magnetar.base.errors import ConfigError

app = typer.Typer(help="Make keys and tokens, and look at tokens.", rich_markup_mode=None)

Algorithm = Annotated[
    str,
    typer.Option("--signature-algorithm", "-a", metavar="NAME", help="HS256, RS256, ES256 and their like."),
]
Secret = Annotated[
    str | None,
    typer.Option(
        "--secret-key", "-sk", metavar="KEY", help="file:///path, data:;base64,..., env:NAME or base64."
    ),
]
PublicKey = Annotated[
    str | None, typer.Option("--public-key", "-pk", metavar="KEY", help="As --secret-key, or a file.")
]
GivenToken = Annotated[str | None, typer.Argument(metavar="[TOKEN]", help="The token.")]
FromStdin = Annotated[bool, typer.Option("--stdin", "-i", help="Read the token from standard input.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", "-f", metavar="FILE", help="A file with the token in it.")
]


@app.callback()
def root() -> None:
    """Make keys and tokens, and look at tokens."""


@app.command("create-key")
def create_key(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file for the key [a secret: standard output]."
        ),
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(
            "--public-key",
            "-pk",
            metavar="FILE",
            help="The file for the public key of RS256, ES256 and their like.",
        ),
    ] = None,
    in_base64: Annotated[bool, typer.Option("--base64", "-b", help="Write a secret in base64.")] = False,
    algorithm: Algorithm = "HS256",
) -> None:
    """Create a key for signing tokens: a secret, or a private key with the public one that servers need."""
    if algorithm.startswith("HS"):
        if public is not None:
            raise ConfigError(f"a secret for {algorithm} has no public key: leave --public-key out")
        create_secret_key(output, in_base64, algorithm)
    elif output is None or public is None or in_base64:
        raise ConfigError("a private key goes into --output, and its public key into --public-key, as DER")
    else:
        create_key_pair(output, public, algorithm)


@app.command()
def inspect(
    token: GivenToken = None,
    stdin: FromStdin = False,
    file: TokenFile = None,
    secret: Secret = None,
    public: PublicKey = None,
    algorithm: Algorithm = "",
) -> None:
    """Show the content of a token; with a key, exit code 2 and the reason if it is not valid."""
    from magnetar.server import token_tool

    given = _given(token, stdin, file)
    if secret is not None or public is not None:
        token_tool.validate(given, algorithm, secret, public)
    elif algorithm:
        raise ConfigError("--signature-algorithm is for a look with a key: give one, too")
    print(token_tool.show(given))


@app.command("create-secret-key", hidden=True)
def create_secret_key(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file for the secret [standard output]."),
    ] = None,
    in_base64: Annotated[bool, typer.Option("--base64", "-b", help="Write it in base64.")] = False,
    algorithm: Algorithm = "HS256",
) -> None:
    """Create a secret for signing and validating tokens."""
    from magnetar.server import token_tool

    secret = token_tool.make_secret(algorithm)
    data = base64.b64encode(secret) if in_base64 else secret
    if output is not None:
        token_tool.write_private(output, data)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@app.command("create-key-pair", hidden=True)
def create_key_pair(
    private: Annotated[
        Path, typer.Option("--output-private-key", metavar="FILE", help="The file for the key.")
    ],
    public: Annotated[
        Path, typer.Option("--output-public-key", metavar="FILE", help="The file for the key.")
    ],
    algorithm: Algorithm = "RS256",
) -> None:
    """Create a private key for signing tokens, and the public one that servers need."""
    from magnetar.server import token_tool

    private_data, public_data = token_tool.make_pair(algorithm)
    token_tool.write_private(private, private_data)
    token_tool.write_private(public, public_data)


@app.command()
def create(
    subject: Annotated[str, typer.Option("--subject", "-s", metavar="ROLE", help="The client's role.")],
    secret: Secret = None,
    private: Annotated[
        str | None, typer.Option("--private-key", "-pk", metavar="KEY", help="As --secret-key, or a file.")
    ] = None,
    expiry: Annotated[
        str | None, typer.Option("--expiry-time", "-e", metavar="TIME", help="30s, 10m, 12h, 7d, 1y [never].")
    ] = None,
    algorithm: Algorithm = "",
    headers: Annotated[
        list[str] | None, typer.Option("--headers", metavar="NAME=VALUE", help="More fields for its header.")
    ] = None,
) -> None:
    """Create a token for a role."""
    from magnetar.server import token_tool

    print(token_tool.make_token(subject, algorithm, secret, private, expiry, headers or []))


@app.command(hidden=True)
def validate(
    token: GivenToken = None,
    stdin: FromStdin = False,
    file: TokenFile = None,
    secret: Secret = None,
    public: PublicKey = None,
    algorithm: Algorithm = "",
) -> None:
    """Show the content of a token if it is valid; exit code 2 and the reason if not."""
    from magnetar.server import token_tool

    print(token_tool.validate(_given(token, stdin, file), algorithm, secret, public))


@app.command(hidden=True)
def show(token: GivenToken = None, stdin: FromStdin = False, file: TokenFile = None) -> None:
    """Show the content of a token, valid or not."""
    from magnetar.server import token_tool

    print(token_tool.show(_given(token, stdin, file)))


def _given(token: str | None, stdin: bool, file: Path | None) -> str:
    if (token is not None) + stdin + (file is not None) != 1:
        raise ConfigError("say the token, --stdin or --token-file, and one of them only")
    if stdin:
        return sys.stdin.read(1 << 20).strip()
    return (
        token if file is None and token is not None else Path(file or "").read_text(errors="replace").strip()
    )
