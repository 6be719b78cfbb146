"""The first page moves by itself: what is delivered shows up on it, and what fails."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from tests.browser.conftest import PASSWORD, Site, picture
from tests.clients import Answer, ProgrammableReceiver
from tests.making import make_executions, make_job

pytestmark = pytest.mark.django_db(transaction=True)


def test_deliveries_and_failures_show_up_without_a_reload(
    site: Site, page: Page, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    User.objects.create_superuser("root", password=PASSWORD)
    receiver.answer(Answer(status=404), path="/missing")
    broken = make_job(workspace, receiver.url("/missing"), name="broken-report")
    site.processes.worker(name="everything", queues="scheduler,maintenance,bucket-triggers,job-dispatch")
    site.processes.beat(name="beat")

    site.login(page, "root")
    delivered = page.locator("#tiles li", has_text="Delivered, last minute").locator("b")
    expect(delivered).to_have_text("0")
    page.evaluate("window.stillTheSamePage = true")
    soon = database_now() + timedelta(seconds=2)
    make_executions(workspace, receiver.url("/fine"), 30, due_at=soon)
    make_executions(workspace, receiver.url("/missing"), 4, job=broken, due_at=soon)
    make_executions(workspace, receiver.url("/later"), 25, due_at=soon + timedelta(minutes=20))

    expect(delivered).to_have_text("30", timeout=40_000)
    expect(page.locator("#tiles li", has_text="Open dead letters").locator("b")).to_have_text("4")
    expect(page.locator("#table-worst")).to_contain_text("broken-report")
    expect(page.locator("#table-leaders")).to_contain_text("scheduler")
    expect(page.locator("#table-workers")).to_contain_text("job-dispatch")
    assert page.evaluate("window.stillTheSamePage") is True
    # Whoever cannot see a chart reads its table, by keyboard.
    page.locator("summary").nth(1).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#table-ended tbody tr").first).to_be_visible()
    page.keyboard.press("Enter")
    picture(page, "dashboard")
