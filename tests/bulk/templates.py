"""Targets and templates for the tests of them."""

from typing import Any

import pytest

from bulk.domain.template import RowRefused, Template, TemplateError, compile_template

URL = "https://api.example.com/users/{{id}}"
SECRET = "secret://acme/api/token"


def http(url: str = "https://api.example.com/hook", **more: Any) -> dict[str, Any]:
    return {"url": url, "method": "POST", "headers": {}, **more}


def kafka(**more: Any) -> dict[str, Any]:
    return {"topic": "orders", "headers": {}, **more}


def compiled(target: dict[str, Any] | None = None, payload: Any = 1) -> Template:
    return compile_template(target=target or http(), payload=payload)


def wrong(target: dict[str, Any] | None = None, payload: Any = 1) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        compiled(target, payload)
    assert str(caught.value)
    return caught.value


def refused(template: Template, **values: str) -> RowRefused:
    with pytest.raises(RowRefused) as caught:
        template.render(values)
    return caught.value


def url_of(url: str, **values: str) -> Any:
    return compiled(http(url)).render(values)[0]["url"]
