"""Bulk jobs tell their end."""

from typing import Any

import pytest

from bulk.models import BulkJob
from chronos_site.tenancy.models import Workspace
from execution.models import Notification
from tests.bulk.pump import make_bulk_job
from tests.bulk.pump import turn as turn_bulk
from tests.making import make_job
from tests.notifications.pump import SIGNING, allow_secrets, make_channel, make_rule, reference, turn
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def channel(workspace: Workspace, settings: Any) -> Any:
    allow_secrets(settings, workspace, signing=SIGNING)
    return make_channel(workspace, url="https://example.com/hook", signing={"secret": reference("signing")})


@pytest.mark.parametrize(
    ("text", "state", "error"), [("id\n", "COMPLETED", ""), ("id\n1,2\n", "FAILED", "too_many_invalid")]
)
def test_the_end_of_a_bulk_job_is_told_once_with_its_state(
    workspace: Workspace, channel: Any, text: str, state: str, error: str
) -> None:
    job = make_job(workspace, "https://example.com/{{id}}", name="letters", tags=["mail"])
    make_rule(workspace, channel, events=["bulk_finished"], tags=["mail"])
    make_rule(workspace, channel, events=["bulk_finished"], tags=["other"])
    bulk = make_bulk_job(workspace, job, text)
    wait_until(lambda: turn_bulk() and BulkJob.objects.get().finished_at)
    turn_bulk()
    turn()
    turn()
    told = Notification.objects.get()
    assert (told.event, told.title) == ("bulk_finished", "acme: a bulk job has ended (letters)")
    [example] = told.content["examples"]
    assert (example["id"], example["reason"], example["error"]) == (str(bulk.id), state, error)
    assert BulkJob.objects.get().state == state
