"""How rows lead to each other, and how what is sent is shown: never with a secret in it."""

import json
from typing import Any

from django.urls import reverse
from django.utils.html import format_html

from execution.domain.credentials import shown

NOTHING = "-"
LONGEST = 20_000
"""Characters of a value that a page shows."""


def link_to(model: str, key: Any, text: Any = None) -> Any:
    """A link to the page of a row; `model` is app_label and name in lower case, such as execution_execution."""
    if key is None:
        return NOTHING
    return _link(reverse(f"admin:{model}_change", args=[key]), text or key)


def list_of(model: str, text: str, **filters: Any) -> Any:
    """A link to a list that shows some rows only."""
    query = {name: str(value) for name, value in filters.items()}
    return _link(reverse(f"admin:{model}_changelist", query=query), text)


def _link(path: str, text: Any) -> Any:
    return format_html('<a class="chronos-link" href="{}">{}</a>', path, text)


def as_json(value: Any) -> Any:
    """A JSON value to read."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return format_html('<pre class="chronos-mono">{}</pre>', text[:LONGEST])


def target_shown(target: Any) -> Any:
    """A target, with what is secret in it hidden."""
    return NOTHING if target is None else as_json(shown(target))
