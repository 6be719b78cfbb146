"""Fixtures that every test may use."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import redis
from django.conf import settings

from chronos_site.infra import mongo
from chronos_site.infra import redis as site_redis
from chronos_site.observability import events
from chronos_site.tenancy import services as tenancy
from chronos_site.tenancy.models import Workspace
from tests.clients import ApiClient, ProgrammableReceiver
from tests.processes import SiteProcesses


@pytest.fixture(scope="session")
def redis_server() -> Iterator[redis.Redis]:
    """A client of the test Redis that belongs to the tests, not to the site."""
    with redis.Redis.from_url(settings.REDIS_URL, decode_responses=True) as client:
        yield client


@pytest.fixture(autouse=True)
def redis_clean(redis_server: redis.Redis) -> None:
    """Every test begins with an empty Redis."""
    redis_server.flushdb()


@pytest.fixture(scope="session", autouse=True)
def redis_closed() -> Iterator[None]:
    """The site's own clients are closed with the session."""
    yield
    site_redis.client().close()
    events.flush()
    events.close()


@pytest.fixture(scope="session", autouse=True)
def mongo_closed() -> Iterator[None]:
    """So is its MongoDB client."""
    yield
    found = mongo.database()
    if found is not None:
        found.client.close()


@pytest.fixture
def workspace(db: None) -> Workspace:
    return tenancy.create_workspace(name="acme")


@pytest.fixture
def other_workspace(db: None) -> Workspace:
    """A second tenant, to which nothing of the first may leak."""
    return tenancy.create_workspace(name="globex")


@pytest.fixture
def api_key(workspace: Workspace) -> str:
    """The plaintext of a key of `workspace` with every scope."""
    _, key = tenancy.create_api_key(workspace=workspace, name="tests")
    return key


@pytest.fixture
def api(api_key: str) -> ApiClient:
    """The API's caller, with `api_key`."""
    return ApiClient(api_key)


@pytest.fixture
def other_api(other_workspace: Workspace) -> ApiClient:
    """The API's caller, with a key of `other_workspace`."""
    _, key = tenancy.create_api_key(workspace=other_workspace, name="tests")
    return ApiClient(key)


@pytest.fixture
def receiver() -> Iterator[ProgrammableReceiver]:
    """A real HTTP server on loopback that records every request and answers as told."""
    with ProgrammableReceiver() as running:
        yield running


@pytest.fixture
def celery_processes(transactional_db: None, tmp_path: Path) -> Generator[SiteProcesses]:
    """Starts real worker and beat processes on the test database; stops them with the test."""
    processes = SiteProcesses(tmp_path)
    yield processes
    processes.stop()
