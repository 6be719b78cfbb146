"""Domain refusals of this room as problem+json, before those of the rooms below."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.http import Http404

from chronos_site.api.problems import FieldProblem, Problem
from execution.api.refusals import refusals_as_problems
from scheduling.backfill import BadRange
from scheduling.models import Schedule
from scheduling.recurring import BadRhythm
from scheduling.services import KeyTaken, TooOld, WrongState

Pointer = Callable[[int], str]


def alone(_index: int) -> str:
    """Where a schedule stands in a body that is itself the schedule."""
    return ""


def in_batch(index: int) -> str:
    return f"/schedules/{index}"


@contextmanager
def schedule_refusals(pointer: Pointer = alone) -> Iterator[None]:
    """Translate what services and selectors raise; `pointer` is where the schedule with that index stands."""
    with refusals_as_problems():
        try:
            yield
        except Schedule.DoesNotExist as error:
            raise Http404 from error
        except WrongState as error:
            raise Problem(409, error.code, str(error), state=error.state) from error
        except TooOld as error:
            raise _problem(422, f"{pointer(error.index)}/run_at", error.code, error) from error
        except KeyTaken as error:
            raise _problem(409, f"{pointer(error.index)}/external_key", error.code, error) from error
        except BadRhythm as error:
            where = f"{pointer(error.index)}/{error.field}"
            raise _problem(422, where, error.code, error, of_body="invalid") from error
        except BadRange as error:
            raise _problem(422, f"/{error.field}", error.code, error, count=error.count) from error


def _problem(status: int, where: str, code: str, error: Exception, *, of_body: str = "", **extra: Any) -> Problem:
    known = {name: value for name, value in extra.items() if value is not None}
    return Problem(status, of_body or code, str(error), errors=[FieldProblem(where, code, str(error))], **known)
