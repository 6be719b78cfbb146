"""A person uploads a file, sees its rows go out, and takes the results home."""

import re
import time
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Error, Page, expect

from bulk.models import BulkJob
from chronos_site.tenancy.models import Membership, Workspace
from tests.browser.conftest import PASSWORD, Site, picture
from tests.clients import ProgrammableReceiver
from tests.making import make_job

pytestmark = pytest.mark.django_db(transaction=True)
ROWS = 300
SHOWN = "['state', 'succeeded'].map((name) => document.querySelector(`[data-show=${name}]`)?.textContent)"


@pytest.fixture
def operator(workspace: Workspace) -> User:
    user = User.objects.create_user("olga", password=PASSWORD, is_staff=True)
    Membership.objects.create(user=user, workspace=workspace, role=Membership.Role.OPERATOR)
    return user


def test_a_file_is_uploaded_its_progress_moves_on_the_page_and_the_results_are_there(
    site: Site, page: Page, operator: User, workspace: Workspace, receiver: ProgrammableReceiver, tmp_path: Path
) -> None:
    limits = {"rate_limit": {"per_s": 100}}
    make_job(workspace, receiver.url(), name="greet", payload={"n": "{{n}}"}, limits=limits)
    site.processes.worker(name="everything", queues="scheduler,maintenance,bulk-ingest,bulk-records")
    site.processes.beat(name="beat")
    file = tmp_path / "people.csv"
    file.write_text("n\n" + "".join(f"{n}\n" for n in range(ROWS)))

    site.login(page, operator.username)
    picture(page, "home")
    page.goto(f"{site.url}/admin/bulk/bulkjob/")
    page.goto(f"{site.url}/admin/bulk/bulkjob/add/")
    page.select_option("select[name=workspace]", workspace.name)
    page.fill("input[name=job]", "greet")
    page.click("text=Go on")

    page.set_input_files("input[name=file]", file)
    page.check("input[name=dry_run]")
    page.click("button:has-text('Upload')")
    expect(page.locator("#dry-run")).to_contain_text("nothing was sent")
    expect(page.locator("#dry-run tbody tr")).to_have_count(5)
    assert not BulkJob.objects.exists()
    picture(page, "bulk-upload")

    page.set_input_files("input[name=file]", file)
    page.uncheck("input[name=dry_run]")
    page.click("button:has-text('Upload')")
    page.wait_for_url(re.compile(r"/change/$"))
    expect(page.locator("[data-show=live]")).to_have_text("live")
    picture(page, "bulk-waiting")
    seen = _watch(page)
    # It moved on the way, and was not only told the end.
    assert len(seen) >= 3
    assert seen == sorted(seen)
    expect(page.locator("[data-show=state]")).to_have_text("COMPLETED")
    expect(page.locator("[data-show=succeeded]")).to_have_text(str(ROWS))

    picture(page, "bulk-done")
    with page.expect_download() as download:
        page.click("text=Download the results")
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) == ROWS + 1
    assert lines[0].startswith("row,")


def _watch(page: Page) -> list[int]:
    """The counts of delivered rows that the page showed until its job had ended."""
    seen: list[int] = []
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        try:
            told = page.evaluate(SHOWN)
        except Error:  # The page loads itself anew at the end, and may do so just now.
            continue
        if told[1] is not None and (not seen or int(told[1]) != seen[-1]):
            seen.append(int(told[1]))
        if told[0] == "COMPLETED":
            return seen
        page.wait_for_timeout(100)
    raise AssertionError(f"it did not end; shown were {seen}")
