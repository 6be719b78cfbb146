"""An engine of the test's own, on the test database."""

from collections.abc import Iterator

import pytest

from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine


@pytest.fixture
def engine(transactional_db: None) -> Iterator[Engine]:
    """Started; stopped with the test."""
    running = build_engine(name="test-engine")
    running.start()
    yield running
    running.begin_stop()
    running.stop(1)
