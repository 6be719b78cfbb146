"""Where secrets stand in a target: in headers, in `auth`, in `signing`. Pure; no value ever passes here.

    headers  {"Authorization": "Bearer secret://…", "X-Api-Key": "secret://…"}
    auth     {"type": "basic", "username": "…", "password": "secret://…"} | {"type": "bearer", "token": "secret://…"}
             | {"type": "api_key", "header": "…", "value": "secret://…"}
    signing  {"secret": "secret://…", "previous_secret": "secret://…"}
    secrets  {"url": "secret://…"}: of notifications only, for senders that know what to do with them by name

A schedule's `delivery` has the headers only. Rows from before there were references may hold literal secrets in
headers: they are sent as they are and never shown.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chronos_site.infra.references import Reference, names_secret, parse_reference, split_value

HIDDEN = "***"
Path = tuple[str, ...]

AUTH_MEMBERS: dict[str, tuple[str, ...]] = {
    "basic": ("username", "password"),
    "bearer": ("token",),
    "api_key": ("header", "value"),
}
"""What each type of `auth` needs."""
AUTH_SECRETS = ("password", "token", "value")
SIGNING_SECRETS = ("secret", "previous_secret")

_WORDS = {"authorization", "cookie", "credential", "credentials", "passwd", "password", "secret", "token", "apikey"}
_KEYS = re.compile(
    r"(?:^|[-_.])(?:access|account|admin|api|app|auth|client|functions|master|private|subscription)[-_]?key$"
)


def carries_secret(header: str) -> bool:
    """Whether a header of this name is there to carry a secret, so that its value is never taken in clear.

    Less than what logs hide: `Idempotency-Key` and the like are no secrets.
    """
    name = header.lower()
    return not _WORDS.isdisjoint(re.split(r"[-_.]", name)) or _KEYS.search(name) is not None


def references_of(part: Mapping[str, Any]) -> Iterator[tuple[Path, Reference]]:
    """Every reference of a target or of a schedule's delivery, with its place. Raises ValueError for a bad one."""
    for name, value in (part.get("headers") or {}).items():
        split = split_value(value)
        if split is not None:
            yield ("headers", name), split[1]
    for member, names in (("auth", AUTH_SECRETS), ("signing", SIGNING_SECRETS)):
        given = part.get(member) or {}
        for name in names:
            if name in given:
                yield (member, name), parse_reference(given[name])
    for name, reference in (part.get("secrets") or {}).items():
        yield ("secrets", name), parse_reference(reference)


def foreign_references(part: Mapping[str, Any] | None, namespaces: Sequence[str]) -> list[tuple[Path, str]]:
    """The places of references to namespaces that are not among `namespaces`, each with a sentence for the caller."""
    return [
        (path, not_allowed(reference, namespaces))
        for path, reference in references_of(part or {})
        if reference.namespace not in namespaces
    ]


def not_allowed(reference: Reference, namespaces: Sequence[str]) -> str:
    allowed = f"only of {', '.join(namespaces)}" if namespaces else "of none"
    return (
        f"This workspace may not use secrets of the namespace {reference.namespace!r}, {allowed}. An operator can allow"
        " it in the admin."
    )


def pointer(path: Path) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)


def auth_header(auth: Mapping[str, Any] | None) -> str | None:
    """The header that `auth` fills; None where there is no auth."""
    if not auth:
        return None
    return str(auth["header"]) if auth["type"] == "api_key" else "Authorization"


def shown(part: Any) -> Any:
    """A target or delivery as it may be answered: references in clear, literal secrets hidden."""
    if not isinstance(part, Mapping) or not part.get("headers"):
        return part
    headers = {name: shown_value(name, value) for name, value in part["headers"].items()}
    return {**part, "headers": headers}


def shown_value(header: str, value: str) -> str:
    return HIDDEN if carries_secret(header) and not names_secret(value) else value
