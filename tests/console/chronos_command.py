"""`manage.py chronos` as a script calls it."""

import io
import json
from typing import Any

from django.core.management import call_command


def chronos(*arguments: str, code: int = 0) -> Any:
    """What it answers with --json; its exit code must be `code`."""
    return json.loads(chronos_text(*arguments, "--json", code=code))


def chronos_text(*arguments: str, code: int = 0) -> str:
    """What it writes for people; its exit code must be `code`."""
    out = io.StringIO()
    ended = 0
    try:
        call_command("chronos", *arguments, stdout=out, stderr=io.StringIO())
    except SystemExit as error:
        ended = int(error.code or 0)
    assert ended == code, out.getvalue()
    return out.getvalue()
