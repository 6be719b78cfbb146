"""Domain refusals of this room as problem+json, before those of the rooms below."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.http import Http404

from bulk.models import BulkJob
from bulk.services import FileRefused, TooLarge, WrongState
from chronos_site.api.problems import FieldProblem, Problem
from chronos_site.infra.storage import StorageError
from execution.api.refusals import refusals_as_problems


@contextmanager
def bulk_refusals() -> Iterator[None]:
    """Translate what services, selectors and the storage raise."""
    with refusals_as_problems():
        try:
            yield
        except BulkJob.DoesNotExist as error:
            raise Http404 from error
        except WrongState as error:
            raise Problem(409, error.code, str(error), state=error.state) from error
        except FileRefused as error:
            status = 413 if isinstance(error, TooLarge) else 422
            places = [FieldProblem(error.pointer, error.code, str(error))]
            raise Problem(status, error.code, str(error), errors=places) from error
        except StorageError as error:
            detail = "The object storage cannot answer right now. Try again in a moment."
            raise Problem(503, "storage_unavailable", detail, headers={"Retry-After": "5"}) from error
