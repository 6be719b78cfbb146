"""A log line is one JSON object and holds no secret."""

import json
import logging
import sys
from typing import Any

import pytest

from chronos_site.observability import context
from chronos_site.observability.logs import JsonFormatter, redact
from chronos_site.tenancy.keys import generate_key


def line(message: str = "m", *args: Any, exc_info: Any = None, **extra: Any) -> dict[str, Any]:
    record = logging.LogRecord("room", logging.INFO, __file__, 1, message, args, exc_info)
    vars(record).update(extra)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_says_when_what_and_whose() -> None:
    tokens = context.request_id.set("r-1"), context.workspace_id.set("w-1")
    try:
        found = line("claimed %s", 5, action="claim", execution_id="e-1", took=1.5, odd={1, 2})
    finally:
        context.request_id.reset(tokens[0])
        context.workspace_id.reset(tokens[1])
    assert found.pop("ts").endswith("Z")
    assert found == {
        "level": "INFO",
        "logger": "room",
        "msg": "claimed 5",
        "request_id": "r-1",
        "workspace_id": "w-1",
        "action": "claim",
        "execution_id": "e-1",
        "took": 1.5,
        "odd": [1, 2],
    }


def test_an_exception_is_text_without_secrets() -> None:
    key = generate_key()
    try:
        raise ValueError(f"bad key {key}")
    except ValueError:
        found = line(exc_info=sys.exc_info())
    assert "ValueError: bad key chr_***" in found["exception"]
    assert key not in found["exception"]


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer SECRETvalue",
        "authorization=SECRETvalue",
        "{'Authorization': 'Basic SECRETvalue=='}",
        '{"authorization": "SECRETvalue"}',
        "bearer SECRETvalue",
        "postgresql://chronos:SECRETvalue@db:5432/x",
        "redis://:SECRETvalue@cache:6379/0",
        "whsec_SECRETvalueSECRETvalue",
    ],
)
def test_secrets_in_texts_are_taken_out(text: str) -> None:
    assert "SECRET" not in redact(text)
    assert "SECRET" not in json.dumps(line("%s", text, note=text, deep={"a": [text]}))


@pytest.mark.parametrize("name", ["password", "authorization", "api_key", "client_secret", "Set-Cookie"])
def test_what_is_named_like_a_secret_is_hidden_whole(name: str) -> None:
    assert line(headers={name: "SECRET"})["headers"] == {name: "***"}


def test_whatever_is_logged_becomes_a_line() -> None:
    assert line(odd=object(), text="\ud800", bits=b"\xff")["msg"] == "m"
