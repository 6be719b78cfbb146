"""A workspace's API keys: list, create, rotate, revoke. A key itself is shown once, by the command that makes it, and
kept nowhere. A rotated key's old secret works on for a while (24 hours unless --overlap says otherwise)."""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone

from chronos_site.console.commands.terminal import (
    DONE,
    AskedWrongly,
    Terminal,
    add_workspace,
    cell,
    clock,
    duration,
    identifier,
    since,
    table,
    workspace_of,
)
from chronos_site.tenancy import selectors, services
from chronos_site.tenancy.api.serializers import ApiKeySerializer
from chronos_site.tenancy.models import ApiKey, Workspace

NAME = "keys"
SUMMARY = "API keys of a workspace: list, create, rotate, revoke"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|create|rotate|revoke")
    listed = verbs.add_parser("list", help="all of them, newest first")
    create = verbs.add_parser("create", help="a new key, shown once")
    create.add_argument("name", help="what it is for")
    create.add_argument(
        "--scope", action="append", choices=services.ALL_SCOPES, metavar="SCOPE", help="may be repeated; all if missing"
    )
    create.add_argument("--expires-in", type=duration, metavar="90d", help="never if missing")
    rotate = verbs.add_parser("rotate", help="a new secret for a key, shown once")
    rotate.add_argument("--overlap", type=_overlap, metavar="24h", help="the old one works on so long; 0 ends it now")
    revoke = verbs.add_parser("revoke", help="refuse it from the next request on, for good")
    for verb in (rotate, revoke):
        verb.add_argument("key", metavar="ID|PREFIX", help="its id, or the first characters of it (chr_…)")
    for verb in (listed, create, rotate, revoke):
        add_workspace(verb, needed=True)
        verb.add_argument("--json", action="store_true", dest="as_json", default=argparse.SUPPRESS, help="for scripts")


def _overlap(text: str) -> float:
    return 0.0 if text == "0" else duration(text)


def run(terminal: Terminal, options: Mapping[str, Any]) -> int:
    workspace = workspace_of(options["workspace"])
    return _VERBS[options["verb"]](terminal, workspace, options)


def _list(terminal: Terminal, workspace: Workspace, _options: Mapping[str, Any]) -> int:
    found = list(selectors.api_keys(workspace=workspace).order_by("-id"))
    if terminal.as_json:
        terminal.json({"items": ApiKeySerializer(found, many=True).data})
        return DONE
    now = datetime.now(UTC)
    rows = [
        (
            key.name,
            f"{key.prefix}…",
            _state(key, now),
            "never" if key.last_used_at is None else f"{since(key.last_used_at, now)} ago",
            clock(key.expires_at),
            "all" if len(key.scopes) == len(services.ALL_SCOPES) else ", ".join(key.scopes),
            key.id,
        )
        for key in found
    ]
    terminal.out.print(
        table(f"Keys of {workspace.name}", ["name", "key", "state", "used", "expires", "scopes", "id"], rows)
    )
    return DONE


def _state(key: ApiKey, now: datetime) -> Any:
    if key.revoked_at is not None:
        return cell("revoked", "dim")
    if key.expires_at is not None and key.expires_at <= now:
        return cell("expired", "dim")
    if key.previous_expires_at is not None and key.previous_expires_at > now:
        return cell(f"rotates: {key.previous_prefix}… until {clock(key.previous_expires_at)}", "yellow")
    return cell("works", "green")


def _create(terminal: Terminal, workspace: Workspace, options: Mapping[str, Any]) -> int:
    expires_in = options["expires_in"]
    try:
        key, plaintext = services.create_api_key(
            workspace=workspace,
            name=options["name"][:100],
            scopes=options["scope"] or services.ALL_SCOPES,
            expires_at=timezone.now() + timedelta(seconds=expires_in) if expires_in else None,
        )
    except ValidationError as error:
        raise AskedWrongly(" ".join(error.messages)) from error
    return _shown_once(terminal, key, plaintext)


def _rotate(terminal: Terminal, workspace: Workspace, options: Mapping[str, Any]) -> int:
    overlap = services.OVERLAP_S if options["overlap"] is None else options["overlap"]
    if overlap > services.LONGEST_OVERLAP_S:
        raise AskedWrongly(f"An overlap is at most {services.LONGEST_OVERLAP_S // 86_400} days.")
    try:
        key, plaintext = services.rotate_api_key(
            workspace=workspace, key_id=_found(workspace, options["key"]).id, overlap_s=overlap
        )
    except services.KeyEndedError as error:
        raise AskedWrongly(str(error)) from error
    if not terminal.as_json:
        until = f"works until {clock(key.previous_expires_at)} UTC" if overlap else "is refused from now on"
        terminal.note(f"The old key ({key.previous_prefix or 'before'}…) {until}.")
    return _shown_once(terminal, key, plaintext)


def _revoke(terminal: Terminal, workspace: Workspace, options: Mapping[str, Any]) -> int:
    key = _found(workspace, options["key"])
    services.revoke_api_key(workspace=workspace, key_id=key.id)
    key.refresh_from_db()
    if terminal.as_json:
        terminal.json(ApiKeySerializer(key).data)
    else:
        terminal.say(f"{key} is revoked.")
    return DONE


_VERBS = {"list": _list, "create": _create, "rotate": _rotate, "revoke": _revoke}


def _found(workspace: Workspace, text: str) -> ApiKey:
    """Raises AskedWrongly."""
    mine = selectors.api_keys(workspace=workspace)
    if text.startswith("chr_"):
        found = list(mine.filter(prefix__startswith=text[:12])[:2])
    else:
        try:
            found = list(mine.filter(id=identifier(text)))
        except argparse.ArgumentTypeError as error:
            raise AskedWrongly(str(error)) from error
    if len(found) != 1:
        told = "There are several such keys" if found else "There is no such key"
        raise AskedWrongly(f"{told} in {workspace.name}. Give its id: chronos keys list --workspace {workspace.name}")
    return found[0]


def _shown_once(terminal: Terminal, key: ApiKey, plaintext: str) -> int:
    if terminal.as_json:
        terminal.json({**ApiKeySerializer(key).data, "key": plaintext})
        return DONE
    terminal.note(f"{key.name} ({key.id}). The key is shown now and never again:")
    terminal.say(plaintext)
    return DONE
