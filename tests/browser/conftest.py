"""A real browser on a real web process. Where there is no Chromium, these tests are skipped; CI installs one."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from chronos_site.stack.processes import free_port
from tests.processes import SiteProcesses, wait_until

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), "")
SCREENSHOTS = os.environ.get("CHRONOS_TEST_SCREENSHOTS")
"""A folder that pictures of the pages are put into; none are taken where it is not set."""
PASSWORD = "a-long-password-of-the-tests"


@dataclass(frozen=True, slots=True)
class Site:
    """A web process that answers."""

    processes: SiteProcesses
    url: str

    def login(self, page: Page, name: str) -> None:
        """Through the login page, as a person does it."""
        page.goto(f"{self.url}/admin/login/?next={quote('/admin/')}")
        page.fill("input[name=username]", name)
        page.fill("input[name=password]", PASSWORD)
        page.click("button[type=submit]")
        page.wait_for_url(f"{self.url}/admin/")


def picture(page: Page, name: str) -> None:
    """The page as it is: light, dark, and as wide as a phone."""
    if not SCREENSHOTS:
        return
    folder = Path(SCREENSHOTS)
    folder.mkdir(parents=True, exist_ok=True)
    usual = page.viewport_size
    page.screenshot(path=folder / f"{name}.png", full_page=True)
    page.evaluate("document.documentElement.classList.add('dark')")
    page.screenshot(path=folder / f"{name}-dark.png", full_page=True)
    page.evaluate("document.documentElement.classList.remove('dark')")
    page.set_viewport_size({"width": 390, "height": 844})
    page.screenshot(path=folder / f"{name}-phone.png", full_page=True)
    if usual is not None:
        page.set_viewport_size(usual)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM:
        pytest.skip("no Chromium on this machine (apt install chromium)")
    with sync_playwright() as playwright:
        # Playwright runs a loop in this thread, which makes Django refuse its database; there is no other user of it.
        before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
        # As root, Chromium runs without its own sandbox only.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield running
        running.close()
        if before is None:
            del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page in a session of its own. An error in a script of ours fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(20_000)
    faults: list[Any] = []
    opened.on("pageerror", lambda fault: faults.append(fault))
    yield opened
    context.close()
    assert not faults


@pytest.fixture
def site(browser: Browser, celery_processes: SiteProcesses) -> Site:
    port = free_port()
    web = celery_processes.web(port=port)
    wait_until(lambda: _answers(port), timeout_s=30, told=lambda: celery_processes.log(web)[-2000:])
    return Site(celery_processes, f"http://127.0.0.1:{port}")


def _answers(port: int) -> bool:
    call = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        call.request("GET", "/healthz")
        return call.getresponse().status == 200
    except OSError:
        return False
    finally:
        call.close()
