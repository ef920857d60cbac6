import pytest

from magnetar.base.masking import HIDDEN, masked, scrubbed, secrets_in


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ({"path": "/data", "trigger": "1 second", "n": 3}, {"path": "/data", "trigger": "1 second", "n": 3}),
        (
            {"storage_options": {"a": "x", "b": True, "c": 1}},
            {"storage_options": {"a": HIDDEN, "b": True, "c": HIDDEN}},
        ),
        ({"SSL.Key.Password": "x", "none": None}, {"SSL.Key.Password": HIDDEN, "none": None}),
        ({"token": {"deep": ["x", {"y": "z"}]}}, {"token": {"deep": [HIDDEN, {"y": HIDDEN}]}}),
        (
            {
                "http.auth": "x",
                "author": "x",
                "webhookUrl": "x",
                "connection.url": "x",
                "subscriptionAuthMode": "x",
            },
            {
                "http.auth": HIDDEN,
                "author": "x",
                "webhookUrl": HIDDEN,
                "connection.url": HIDDEN,
                "subscriptionAuthMode": "x",
            },
        ),
        ({"url": "s3://u:p@h/x"}, {"url": f"s3://{HIDDEN}@h/x"}),
        ({"url": "az://h/x?sig=1&b=2"}, {"url": f"az://h/x?{HIDDEN}"}),
        ({"sql": "select a from source where b like '?'"}, {"sql": "select a from source where b like '?'"}),
        ({"password": ""}, {"password": ""}),
        ({"db.Pwd": "x"}, {"db.Pwd": HIDDEN}),
    ],
)
def test_what_is_secret_is_hidden_and_the_rest_is_not(content: object, shown: object) -> None:
    assert masked(content) == shown


def test_secrets_are_taken_out_of_what_others_say() -> None:
    config = {
        "storage_options": {"key": "abcdef", "allow_http": "true", "x": "abc"},
        "p": "s3://me:pass@h?token=wxyz",
    }
    secrets = secrets_in(config)
    assert secrets == {"abcdef", "me:pass", "pass", "token=wxyz", "wxyz"}
    said = {"why": "abcdef is not me:pass", "true": [1, "abcdefabcdef", None]}
    assert scrubbed(said, secrets) == {
        "why": f"{HIDDEN} is not {HIDDEN}",
        "true": [1, f"{HIDDEN}{HIDDEN}", None],
    }
    assert scrubbed(said, frozenset()) is said
