"""What a schedule can be refused for: one code, one clear sentence, and the part of the schedule that it is about."""


class ScheduleError(ValueError):
    """A schedule that cannot be followed. `field` names the part: expression, timezone or every."""

    code = "invalid"

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field


class InvalidSchedule(ScheduleError):  # noqa: N818 - named for what it says of the schedule
    """The text is not in the grammar, or the zone is not in the IANA data."""


class NeverFires(ScheduleError):  # noqa: N818 - the same
    """The text is in the grammar and no instant fits it."""

    code = "never_fires"


def shown(text: str, longest: int = 24) -> str:
    """`text` as a message may repeat it: ASCII, quoted, short."""
    return ascii(text if len(text) <= longest else f"{text[:longest]}…").replace("\\u2026", "...")
