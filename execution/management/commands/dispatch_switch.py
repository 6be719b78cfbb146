"""`manage.py dispatch_switch off|on|list`: stop and resume deliveries without losing any."""

import getpass
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chronos_site.tenancy.models import Workspace
from execution import switches
from execution.models import DispatchSwitch

GLOBAL = DispatchSwitch.Scope.GLOBAL


class Command(BaseCommand):
    help = (
        "Switches deliveries off and on: all, of a workspace, to a destination, or of a queue. Off: within two seconds "
        "no send begins; sends under way end. What is due waits, and goes in order of its time once it is on again. "
        "Exit codes: 0 done, or it was so already; 2 there is no such place."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        off = verbs.add_parser("off", help="stop sending")
        on = verbs.add_parser("on", help="send again")
        for verb in (off, on):
            verb.add_argument("--scope", required=True, choices=DispatchSwitch.Scope.values)
            verb.add_argument(
                "--value", default="", help="a workspace's name or id, a destination as host:port or URL, a queue"
            )
            verb.add_argument("--by", default=None, metavar="WHO", help="your name; the system's user if missing")
        off.add_argument("--reason", default="", help="why, for whoever finds it off")
        for verb in (off, on, verbs.add_parser("list", help="what is off, and how much waits")):
            verb.add_argument("--json", action="store_true", dest="as_json", help="for programs")

    def handle(self, *, verb: str, as_json: bool, **options: Any) -> None:
        if verb == "list":
            self._list(as_json)
            return
        try:
            self._turn(verb, as_json, **options)
        except switches.UnknownPlace as error:
            raise CommandError(str(error), returncode=2) from error

    def _turn(self, verb: str, as_json: bool, *, scope: str, value: str, by: str | None, **options: Any) -> None:
        set_by = by or getpass.getuser()
        if verb == "off":
            _, changed = switches.close_switch(scope=scope, value=value, reason=options["reason"], set_by=set_by)
        else:
            changed = switches.open_switch(scope=scope, value=value, set_by=set_by)
        told = {"scope": scope, "value": switches.place_of(scope=scope, value=value), "is": verb, "changed": changed}
        if as_json:
            self.stdout.write(json.dumps(told))
        else:
            self.stdout.write(f"{scope} {value}".strip() + f" is {verb}" + ("" if changed else " already"))

    def _list(self, as_json: bool) -> None:
        waiting = switches.count_held()
        names = {str(found_id): name for found_id, name in Workspace.objects.values_list("id", "name")}
        found = [
            {
                "scope": switch.scope,
                "value": switch.value,
                "name": names.get(switch.value) if switch.scope == DispatchSwitch.Scope.WORKSPACE else None,
                "at": switch.at.isoformat(),
                "by": switch.set_by,
                "reason": switch.reason,
                "waiting": waiting.get(switch.id, 0),
            }
            for switch in DispatchSwitch.objects.order_by("id")
        ]
        if as_json:
            self.stdout.write(json.dumps({"off": found}, ensure_ascii=False, indent=2))
            return
        for row in found:
            place = f"{row['scope']} {row['name'] or row['value']}".strip()
            count = "" if row["scope"] in (GLOBAL, DispatchSwitch.Scope.QUEUE) else f", {row['waiting']} wait"
            why = f": {row['reason']}" if row["reason"] else ""
            self.stdout.write(f"{place} is off since {row['at']} by {row['by'] or 'somebody'}{count}{why}")
        if not found:
            self.stdout.write("Everything is on.")
