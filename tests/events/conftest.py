"""Engines of the test's own, on the test database: one for executions, one for rows of bulk jobs."""

from collections.abc import Iterator

import pytest

from bulk.publish import RECORDS_QUEUE
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine


@pytest.fixture
def engine(transactional_db: None) -> Iterator[Engine]:
    """Started; stopped with the test."""
    yield from _running(build_engine(name="test-engine"))


@pytest.fixture
def record_engine(transactional_db: None) -> Iterator[Engine]:
    yield from _running(build_engine(name="bulk-test-engine", queue=RECORDS_QUEUE))


def _running(engine: Engine) -> Iterator[Engine]:
    engine.start()
    yield engine
    engine.begin_stop()
    engine.stop(1)
