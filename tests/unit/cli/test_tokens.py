"""`magnetar tokens`: keys and tokens made, and looked at."""

import base64
import json
from pathlib import Path

import pytest

from magnetar.cli.main import run

Captured = pytest.CaptureFixture[str]


def made(capsys: Captured, *arguments: str) -> str:
    assert run(["tokens", *arguments]) == 0
    return capsys.readouterr().out.strip()


def refused(capsys: Captured, *arguments: str) -> str:
    assert run(["tokens", *arguments]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(("algorithm", "size"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
def test_token_of_a_secret_is_good_with_it(
    tmp_path: Path, capsys: Captured, algorithm: str, size: int
) -> None:
    file = tmp_path / "secret"
    made(capsys, "create-secret-key", "--output", str(file), "-a", algorithm)
    assert file.stat().st_size == size
    assert file.stat().st_mode & 0o777 == 0o600
    key = f"file://{file}"
    token = made(
        capsys, "create", "-sk", key, "-s", "alice", "-e", "1h", "-a", algorithm, "--headers", "kid=one"
    )
    assert '"sub": "alice"' in made(capsys, "validate", token, "--secret-key", key)
    header, claims = made(capsys, "show", token).split("\n---\n")
    assert '"kid": "one"' in header
    assert '"exp"' in claims
    changed = token[:-8] + "AAAAAAAA"
    assert "another key" in refused(capsys, "validate", changed, "-sk", key)
    assert changed not in refused(capsys, "validate", changed, "-sk", key)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_token_of_a_private_key_is_good_with_the_public_one(
    tmp_path: Path, capsys: Captured, algorithm: str
) -> None:
    private, public, token = tmp_path / "private", tmp_path / "public", tmp_path / "token"
    made(
        capsys, "create-key-pair", "--output-private-key", str(private), "--output-public-key", str(public),
        "-a", algorithm,
    )  # fmt: skip
    assert private.stat().st_mode & 0o777 == 0o600
    token.write_text(made(capsys, "create", "-pk", str(private), "-s", "alice", "-a", algorithm) + "\n")
    assert "alice" in made(capsys, "validate", "-f", str(token), "-pk", f"file://{public}", "-a", algorithm)
    assert "private key is not one for" in refused(
        capsys, "create", "-pk", str(private), "-s", "a", "-a", "ES384"
    )


@pytest.mark.parametrize("algorithm", ["HS512", "ES256"])
def test_what_a_made_key_has_signed_is_inspected_with_it(
    tmp_path: Path, capsys: Captured, algorithm: str
) -> None:
    key, public = tmp_path / "key", tmp_path / "public"
    has_pair = algorithm == "ES256"
    made(capsys, "create-key", "-o", str(key), "-a", algorithm, *(["-pk", str(public)] if has_pair else []))
    assert key.stat().st_mode & 0o777 == 0o600
    signs = ["-pk" if has_pair else "-sk", key.as_uri(), "-a", algorithm]
    looks = ["-pk", public.as_uri(), "-a", algorithm] if has_pair else ["-sk", key.as_uri()]
    token = made(capsys, "create", "-s", "alice", *signs)
    for arguments in ([token], [token, *looks]):
        header, claims = map(json.loads, made(capsys, "inspect", *arguments).split("\n---\n"))
        assert (header["alg"], claims["sub"]) == (algorithm, "alice")
    other = tmp_path / "other"
    made(capsys, "create-key", "-o", str(other))
    assert "the token is not good" in refused(capsys, "inspect", token, "-sk", other.as_uri())


def test_help_names_the_verbs_and_not_their_other_names(capsys: Captured) -> None:
    said = made(capsys, "--help")
    verbs = [line.split()[0] for line in said.partition("Commands:")[2].splitlines() if line.split()]
    assert verbs == ["create-key", "inspect", "create"]


def test_key_that_is_there_is_not_written_over(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"precious")
    assert "is there already" in refused(capsys, "create-secret-key", "-o", str(file))
    assert file.read_bytes() == b"precious"


def test_secret_may_go_to_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["tokens", "create-secret-key", "--base64"]) == 0
    assert len(base64.b64decode(capfdbinary.readouterr().out)) == 32


def test_bad_command_lines_are_one_sentence(capsys: Captured) -> None:
    secret = base64.b64encode(bytes(range(32))).decode()
    for arguments, reason in (
        (("create", "-s", "a"), "give one of them"),
        (("create", "-s", " ", "-sk", secret), "has a role"),
        (("create", "-s", "a", "-sk", secret, "-e", "soon"), "is no time"),
        (("create", "-s", "a", "-sk", secret, "--headers", "alg=none"), "name=value"),
        (("create", "-s", "a", "-sk", secret, "-a", "HS512"), "not one for HS512"),
        (("create", "-s", "a", "-sk", secret, "-a", "none"), "not one for none"),
        (("create", "-s", "a", "-pk", secret), "is no private key"),
        (("create-secret-key", "-a", "RS256"), "one of HS256"),
        (("create-key", "-a", "HS256", "-pk", "x"), "no public key"),
        (("create-key", "-a", "RS256", "-o", "x"), "into --public-key"),
        (("create-key", "-a", "HS1", "-o", "x"), "one of HS256"),
        (("inspect", "x", "-a", "HS256"), "give one, too"),
        (("inspect", "x"), "no token"),
        (("show", "x"), "no token"),
        (("show",), "one of them only"),
        (("validate", "x"), "give one of them"),
    ):
        said = refused(capsys, *arguments)
        assert reason in said
        assert secret not in said
