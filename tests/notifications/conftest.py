"""An engine that sends notifications, on the test database, and a mail server of the test's own."""

from collections.abc import Iterator
from typing import Any

import pytest

from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine
from execution.publish import NOTIFICATIONS_QUEUE
from tests.notifications.mail import MailServer


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    retry = {"max_attempts": 3, "initial_backoff_s": 0.05, "jitter": "none"}
    monkeypatch.setattr("execution.notifications.source.RETRY", retry)


@pytest.fixture
def sender(transactional_db: None) -> Iterator[Engine]:
    """Started; stopped with the test."""
    running = build_engine(name="notifications-test-engine", queue=NOTIFICATIONS_QUEUE)
    running.start()
    yield running
    running.begin_stop()
    running.stop(1)


@pytest.fixture
def mail(settings: Any) -> Iterator[MailServer]:
    """A real SMTP server, which is the site's."""
    with MailServer() as server:
        settings.EMAIL_HOST = "127.0.0.1"
        settings.EMAIL_PORT = server.port
        yield server
