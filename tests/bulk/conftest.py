"""An engine that delivers records, on the test database."""

from collections.abc import Iterator

import pytest

from bulk.publish import RECORDS_QUEUE
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine


@pytest.fixture
def engine(transactional_db: None) -> Iterator[Engine]:
    """Started; stopped with the test."""
    running = build_engine(name="bulk-test-engine", queue=RECORDS_QUEUE)
    running.start()
    yield running
    running.begin_stop()
    running.stop(1)
