"""Who watches a workspace is told what happens in it, and of no other."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from websockets.sync.client import ClientConnection

from chronos_site.infra.ids import new_id
from chronos_site.observability import events
from chronos_site.tenancy import services as tenancy
from chronos_site.tenancy.models import Membership, Scope, Workspace
from execution import transitions
from execution.event_consumer import Entry, Reader
from execution.event_sinks import to_live_pages
from execution.models import Execution
from execution.sockets import MOST_PER_S
from tests.bulk.sockets import Sockets, code_of, session_of, state
from tests.making import make_executions, make_job
from tests.processes import SiteProcesses

pytestmark = pytest.mark.django_db(transaction=True)

NOWHERE = "http://127.0.0.1:9/"
PATH = "/ws/v1/executions"


@pytest.fixture
def sockets(celery_processes: SiteProcesses) -> Sockets:
    return Sockets(celery_processes)


class Pages:
    """The sink `live`, run when a test says so."""

    def __init__(self) -> None:
        self._reader = Reader(group="live", consumer="tests", sink=to_live_pages)

    def tell(self) -> None:
        events.flush(5)
        self._reader.run(once=True)


@pytest.fixture
def pages() -> Pages:
    return Pages()


@contextmanager
def watch(sockets: Sockets, key: str, query: str = "") -> Iterator[ClientConnection]:
    with sockets.open_path(f"{PATH}{query}", key=key) as socket:
        assert state(socket, 15)["type"] == "watching"
        yield socket


def messages(socket: ClientConnection, count: int) -> list[dict[str, Any]]:
    return [state(socket, 10) for _ in range(count)]


def silent(socket: ClientConnection, for_s: float = 0.5) -> bool:
    try:
        socket.recv(timeout=for_s)
    except TimeoutError:
        return True
    return False


def test_a_watcher_sees_its_workspace_and_filters_and_tenants_never_meet(
    sockets: Sockets, api_key: str, workspace: Workspace, other_workspace: Workspace, pages: Pages
) -> None:
    _, foreign = tenancy.create_api_key(workspace=other_workspace, name="foreign")
    job, schedule = make_job(workspace, NOWHERE), new_id()
    with (
        watch(sockets, api_key) as all_of_it,
        watch(sockets, foreign) as other,
        watch(sockets, api_key, f"?job_definition={job.id}") as by_job,
        watch(sockets, api_key, f"?schedule={schedule}") as by_schedule,
        watch(sockets, api_key, "?state=QUEUED&state=FAILED") as by_state,
        watch(sockets, foreign, f"?job_definition={job.id}") as sneaky,
    ):
        [plain] = make_executions(workspace, NOWHERE)
        [of_job] = make_executions(workspace, NOWHERE, job=job)
        [of_schedule] = make_executions(workspace, NOWHERE, schedule_id=schedule)
        [theirs] = make_executions(other_workspace, NOWHERE)
        transitions.queue_pending(ids=[of_job.id])
        pages.tell()
        seen = messages(all_of_it, 4)
        assert {e["execution"] for e in seen} == {str(row.id) for row in (plain, of_job, of_schedule)}
        assert {e["workspace"] for e in seen} == {str(workspace.id)}
        assert [e["type"] for e in messages(by_job, 2)] == ["execution.created", "execution.queued"]
        assert messages(by_schedule, 1)[0]["execution"] == str(of_schedule.id)
        assert messages(by_state, 1)[0]["execution"] == str(of_job.id)
        assert messages(other, 1)[0]["execution"] == str(theirs.id)
        assert all(silent(socket, 0.2) for socket in (all_of_it, other, by_job, by_schedule, by_state, sneaky))


def test_a_crowd_of_events_is_thinned_out_and_says_by_how_many(
    sockets: Sockets, api_key: str, workspace: Workspace, pages: Pages
) -> None:
    with watch(sockets, api_key) as socket:
        make_executions(workspace, NOWHERE, 400)
        begun = time.monotonic()
        pages.tell()
        seen = left_out = 0
        while seen + left_out < 400:
            told = state(socket, 10)
            if told["type"] == "dropped":
                left_out += told["count"]
            else:
                seen += 1
        took = time.monotonic() - begun
    assert left_out > 0
    assert seen <= MOST_PER_S * (took + 2)


def test_keys_sessions_and_queries_that_do_not_fit_are_refused(
    sockets: Sockets, api_key: str, workspace: Workspace, other_workspace: Workspace
) -> None:
    _, narrow = tenancy.create_api_key(workspace=workspace, name="narrow", scopes=[Scope.JOBS_READ])
    member = User.objects.create_user("member")
    Membership.objects.create(user=member, workspace=workspace)
    cookie, own = session_of(member), f"http://127.0.0.1:{sockets.port}"
    cases: list[tuple[str, dict[str, str], int]] = [
        ("", {}, 4401),
        (f"?key={api_key}", {}, 4401),
        ("", {"key": "chr_mistyped"}, 4401),
        ("", {"key": narrow}, 4403),
        ("?colour=red", {"key": api_key}, 4400),
        ("?schedule=nightly", {"key": api_key}, 4400),
        ("?workspace=globex", {"Cookie": cookie, "Origin": own}, 4403),
        ("?workspace=acme", {"Cookie": cookie, "Origin": "http://evil.test"}, 4403),
        ("", {"Cookie": cookie, "Origin": own}, 4403),
    ]
    for query, given, code in cases:
        with sockets.open_path(PATH + query, **given) as socket:
            assert code_of(socket, 10) == code, (query, given)
    with sockets.open_path(f"{PATH}?workspace=acme", Cookie=cookie, Origin=own) as socket:
        assert state(socket, 10) == {"type": "watching", "workspace": str(workspace.id)}


def test_the_sink_passes_over_what_has_no_workspace(workspace: Workspace) -> None:
    to_live_pages([Entry("1-1", json.dumps({"type": "x"}))])
    assert Execution.objects.count() == 0
