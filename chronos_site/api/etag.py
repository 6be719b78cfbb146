"""Versions as entity tags: `ETag: "3"` out, `If-Match: "3"` in. Without If-Match nothing is checked."""

from django.http import HttpResponseBase
from rest_framework.request import Request

from chronos_site.api.problems import Problem


def set_etag(response: HttpResponseBase, version: int) -> None:
    response["ETag"] = f'"{version}"'


def expected_version(request: Request) -> int | None:
    """The version that the caller insists on; None for none, and for `*`. Raises Problem 412 for no tag of ours."""
    raw = request.headers.get("If-Match")
    if raw is None or raw.strip() == "*":
        return None
    text = raw.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _mismatch("If-Match holds no ETag of this resource.")
    return int(text)


def check_if_match(request: Request, version: int) -> None:
    """Raises Problem 412 where If-Match names another version."""
    expected = expected_version(request)
    if expected is not None and expected != version:
        raise _mismatch(f"The resource is at version {version}, not {expected}. Read it again and repeat the change.")


def _mismatch(detail: str) -> Problem:
    return Problem(412, "version_mismatch", detail)
