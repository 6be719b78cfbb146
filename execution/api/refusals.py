"""Domain refusals of this room as problem+json."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.http import Http404

from chronos_site.api.problems import FieldProblem, Problem
from execution.dead_letters import AlreadyResolved
from execution.domain.credentials import pointer
from execution.models import DeadLetter, Execution, JobDefinition
from execution.quotas import QuotaExceeded
from execution.services import NameTaken, NotPending, Refused, SecretNotAllowed, VersionMismatch


@contextmanager
def refusals_as_problems() -> Iterator[None]:
    """Translate what services and selectors raise."""
    try:
        yield
    except (JobDefinition.DoesNotExist, Execution.DoesNotExist, DeadLetter.DoesNotExist) as error:
        raise Http404 from error
    except QuotaExceeded as error:
        raise Problem(
            429, "quota_exceeded", str(error), headers={"Retry-After": "10"}, quota=error.quota, limit=error.limit
        ) from error
    except NameTaken as error:
        raise Problem(409, error.code, str(error), errors=[FieldProblem("/name", error.code, str(error))]) from error
    except SecretNotAllowed as error:
        places = [FieldProblem(pointer(path), error.code, why) for path, why in error.places]
        raise Problem(422, error.code, str(error), errors=places) from error
    except VersionMismatch as error:
        raise Problem(412, error.code, str(error)) from error
    except NotPending as error:
        raise Problem(409, error.code, str(error), state=error.state) from error
    except AlreadyResolved as error:
        raise Problem(409, error.code, str(error), state=error.status) from error
    except Refused as error:
        raise Problem(409, error.code, str(error)) from error
