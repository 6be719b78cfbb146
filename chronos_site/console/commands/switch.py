"""Stop and resume deliveries: all, of a workspace, to a destination, or of a queue. Off: within two seconds no send
begins; sends under way end. What is due waits at no charge, and goes in the order of its time once it is on again."""

import argparse
import getpass
from collections.abc import Mapping
from typing import Any

from chronos_site.console.commands.terminal import DONE, AskedWrongly, Terminal, clock, count, table
from chronos_site.console.selectors.bounded import bounded_cursor
from chronos_site.console.selectors.state import SwitchState, read_switches
from execution import switches
from execution.models import DispatchSwitch

NAME = "switch"
SUMMARY = "stop and resume deliveries; list what is off"

COUNTED = {DispatchSwitch.Scope.WORKSPACE, DispatchSwitch.Scope.DESTINATION}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="off|on|list")
    off, on = verbs.add_parser("off", help="stop sending"), verbs.add_parser("on", help="send again")
    for verb in (off, on):
        verb.add_argument("--scope", required=True, choices=DispatchSwitch.Scope.values)
        verb.add_argument(
            "--value", default="", help="a workspace's name or id, a destination as host:port or URL, a queue"
        )
        verb.add_argument("--by", default=None, metavar="WHO", help="your name; the system's user if missing")
    off.add_argument("--reason", default="", help="why, for whoever finds it off")
    for verb in (off, on, verbs.add_parser("list", help="what is off, and how much waits")):
        # SUPPRESS: else the verb's default would take back what was given before it.
        verb.add_argument("--json", action="store_true", dest="as_json", default=argparse.SUPPRESS, help="for scripts")


def run(terminal: Terminal, options: Mapping[str, Any]) -> int:
    if options["verb"] in (None, "list"):
        return _list(terminal)
    try:
        return _turn(terminal, options)
    except switches.UnknownPlace as error:
        raise AskedWrongly(str(error)) from error


def _turn(terminal: Terminal, options: Mapping[str, Any]) -> int:
    verb, scope, value = options["verb"], options["scope"], options["value"]
    set_by = options["by"] or getpass.getuser()
    if verb == "off":
        _, changed = switches.close_switch(scope=scope, value=value, reason=options["reason"], set_by=set_by)
    else:
        changed = switches.open_switch(scope=scope, value=value, set_by=set_by)
    if terminal.as_json:
        place = switches.place_of(scope=scope, value=value)
        terminal.json({"scope": scope, "value": place, "is": verb, "changed": changed})
    else:
        terminal.say(f"{scope} {value}".strip() + f" is {verb}" + ("" if changed else " already"))
    return DONE


def _list(terminal: Terminal) -> int:
    with bounded_cursor() as cursor:
        found = read_switches(cursor)
    if terminal.as_json:
        terminal.json({"off": found})
    elif found:
        terminal.out.print(off_table(found))
        terminal.say("On again: chronos switch on --scope SCOPE --value VALUE")
    else:
        terminal.say("Everything is on.")
    return DONE


def off_table(found: list[SwitchState]) -> Any:
    """Also part of `chronos status`."""
    return table(
        "Switched off",
        ["scope", "value", "since", "by", ">waiting", "reason"],
        [
            (
                row.scope,
                row.name or row.value,
                clock(row.at),
                row.by or "somebody",
                count(row.waiting) if row.scope in COUNTED else "-",
                row.reason,
            )
            for row in found
        ],
    )
