"""The settle loop: a schedule that fired says so."""

import pytest
from django.utils import timezone

from execution.models import Execution
from scheduling.loops.settle import settle_schedules
from scheduling.models import Schedule
from tests.clients import ApiClient

pytestmark = pytest.mark.django_db

BODY = {"target": {"url": "https://hooks.example.com/in"}, "delay_s": 0}


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "EXPIRED", "CANCELLED"])
def test_a_schedule_is_completed_once_its_execution_has_ended(api: ApiClient, state: str) -> None:
    made = api.post("/v1/schedules", BODY).json()
    assert settle_schedules().completed == 0
    Execution.objects.update(state=state, finished_at=timezone.now())
    assert settle_schedules().completed == 1
    assert settle_schedules().completed == 0
    body = api.get(f"/v1/schedules/{made['id']}").json()
    assert (body["state"], body["version"]) == ("COMPLETED", 2)
    assert api.get("/v1/schedules?state=ACTIVE").json()["items"] == []


def test_a_cancel_that_comes_too_late_is_409_and_changes_nothing(api: ApiClient) -> None:
    made = api.post("/v1/schedules", BODY).json()
    Execution.objects.update(state="SUCCEEDED")
    answer = api.post(f"/v1/schedules/{made['id']}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (409, "SUCCEEDED")
    assert Schedule.objects.get().state == "ACTIVE"
    settle_schedules()
    assert api.post(f"/v1/schedules/{made['id']}/cancel").status_code == 409
    assert Schedule.objects.get().state == "COMPLETED"
