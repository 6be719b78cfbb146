"""Which events of a notification rule go together. Pure; the names are those of `NotificationRule.Event`."""

from collections.abc import Collection

FAILURE, IN_ROW, RECOVERY, LEADER = "failure", "failures_in_row", "recovery", "leader_missing"

FAULTS = {
    "needs_number": "Say how many in a row: failures_in_row is needed with this event.",
    "needs_event": "This belongs to the event failures_in_row, which is not among the events.",
    "needs_failure": "A recovery follows a failure that was told: add failure or failures_in_row to the events.",
    "site_only": "leader_missing is told by rules of the whole site only.",
}


def fault_of(events: Collection[str], failures_in_row: int | None, *, site: bool = False) -> tuple[str, str] | None:
    """The field that is wrong, and the code of its fault; None where all is well."""
    counts = IN_ROW in events
    if counts and failures_in_row is None:
        return "failures_in_row", "needs_number"
    if not counts and failures_in_row is not None:
        return "failures_in_row", "needs_event"
    if LEADER in events and not site:
        return "events", "site_only"
    if RECOVERY in events and not {FAILURE, IN_ROW, LEADER} & set(events):
        return "events", "needs_failure"
    return None
