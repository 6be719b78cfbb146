"""Who watches a bulk job is told where it stands, and nobody else is."""

import time
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from bulk import watchers
from bulk.models import BulkJob
from chronos_site.tenancy import services as tenancy
from chronos_site.tenancy.models import ApiKey, Membership, Scope, Workspace
from execution.dispatch.engine import Engine
from tests.bulk.pump import make_bulk_job, run_to_end, turn
from tests.bulk.sockets import Sockets, code_of, state, states_until_closed
from tests.clients import ProgrammableReceiver
from tests.making import make_job
from tests.processes import SiteProcesses

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sockets(celery_processes: SiteProcesses) -> Sockets:
    return Sockets(celery_processes)


@pytest.fixture
def job(workspace: Workspace, receiver: ProgrammableReceiver) -> BulkJob:
    rows = "".join(f"{n}\n" for n in range(300))
    return make_bulk_job(workspace, make_job(workspace, receiver.url(), payload={"n": "{{n}}"}), "n\n" + rows)


def test_a_watcher_gets_the_state_then_changes_five_a_second_at_most_then_the_end(
    sockets: Sockets, job: BulkJob, api_key: str, engine: Engine
) -> None:
    with sockets.open(job, key=api_key) as socket:
        first = state(socket)
        assert (first["id"], first["state"], first["succeeded"]) == (str(job.id), "UPLOADED", 0)
        told = states_until_closed(socket, lambda: turn(engine))
    assert told[-1][1]["state"] == "COMPLETED"
    assert told[-1][1]["succeeded"] == 300
    counts = [message["succeeded"] for _, message in told]
    assert counts == sorted(counts)
    assert all(one != other for (_, one), (_, other) in pairwise(told)), "told without a change"
    times = [at for at, _ in told]
    # Six messages take a second; a tenth for what the way adds.
    assert all(later - at > 0.9 for at, later in zip(times, times[5:], strict=False))
    with sockets.open(job, key=api_key) as socket:
        assert state(socket)["state"] == "COMPLETED"
        assert code_of(socket) == 1000


def test_a_change_is_told_at_once_and_a_lost_message_only_delays_it(
    sockets: Sockets, job: BulkJob, api_key: str
) -> None:
    with sockets.open(job, key=api_key) as socket:
        state(socket)
        time.sleep(0.4)
        BulkJob.objects.filter(id=job.id).update(succeeded=7)
        watchers.tell([job.id])
        assert state(socket, 1.0)["succeeded"] == 7
        BulkJob.objects.filter(id=job.id).update(succeeded=8)
        assert state(socket, 4)["succeeded"] == 8


def test_telling_does_not_raise_and_does_not_wait_where_redis_is_away(
    job: BulkJob, settings: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    layer = {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": ["redis://127.0.0.1:1/0"]}}
    settings.CHANNEL_LAYERS = {"default": layer}  # type: ignore[attr-defined]
    began = time.monotonic()
    watchers.tell([job.id])
    assert time.monotonic() - began < 3
    assert "watchers_not_told" in caplog.messages


def test_keys_open_the_jobs_of_their_workspace_only_and_only_with_the_scope(
    sockets: Sockets, job: BulkJob, api_key: str, workspace: Workspace, other_workspace: Workspace
) -> None:
    _, foreign = tenancy.create_api_key(workspace=other_workspace, name="foreign")
    _, narrow = tenancy.create_api_key(workspace=workspace, name="narrow", scopes=[Scope.JOBS_READ])
    revoked_row, revoked = tenancy.create_api_key(workspace=workspace, name="revoked")
    tenancy.revoke_api_key(workspace=workspace, key_id=revoked_row.id)
    cases: list[tuple[BulkJob | str, dict[str, Any], int]] = [
        (job, {"key": foreign}, 4404),
        ("no-id", {"key": api_key}, 4404),
        ("01890000-0000-7000-8000-000000000000", {"key": api_key}, 4404),
        (job, {}, 4401),
        (job, {"query": f"?key={api_key}&token={api_key}"}, 4401),
        (job, {"key": "chr_mistyped"}, 4401),
        (job, {"key": revoked}, 4401),
        (job, {"key": narrow}, 4403),
    ]
    for target, given, code in cases:
        with sockets.open(target, **given) as socket:
            assert code_of(socket) == code, (target, given)


def test_sessions_open_the_jobs_of_workspaces_they_belong_to_from_pages_of_the_same_origin(
    sockets: Sockets, job: BulkJob, other_workspace: Workspace
) -> None:
    member = User.objects.create_user("member")
    Membership.objects.create(user=member, workspace=job.workspace)
    Membership.objects.create(user=member, workspace=other_workspace)
    stranger = User.objects.create_user("stranger")
    root = User.objects.create_superuser("root")
    for user in (member, root):
        with sockets.by_session(job, user, workspace="acme") as socket:
            assert state(socket)["state"] == "UPLOADED"
    cases = [
        (member, "acme", "http://evil.test", 4403),
        (member, "acme", f"http://localhost:{sockets.port}", 4403),
        (member, "", "", 4403),
        (member, "globex", "", 4404),
        (stranger, "acme", "", 4403),
        (root, "nowhere", "", 4403),
    ]
    for user, workspace, origin, code in cases:
        with sockets.by_session(job, user, workspace=workspace, origin=origin) as socket:
            assert code_of(socket) == code, (user, workspace, origin)


@pytest.mark.timeout(180)
def test_who_may_no_longer_watch_is_closed_out_within_a_minute(sockets: Sockets, job: BulkJob, api_key: str) -> None:
    people = [User.objects.create_user(name) for name in ("inactive", "left")]
    for user in people:
        Membership.objects.create(user=user, workspace=job.workspace)
    _, expiring = tenancy.create_api_key(workspace=job.workspace, name="expiring")
    opened = [sockets.open(job, key=api_key), sockets.open(job, key=expiring)]
    opened += [sockets.by_session(job, user, workspace="acme") for user in people]
    with ExitStack() as stack:
        watching = [stack.enter_context(socket) for socket in opened]
        for socket in watching:
            state(socket)
        ends = time.monotonic() + 60
        ApiKey.objects.filter(name="tests").update(revoked_at=timezone.now())
        ApiKey.objects.filter(name="expiring").update(expires_at=timezone.now())
        User.objects.filter(username="inactive").update(is_active=False)
        Membership.objects.filter(user=people[1]).delete()
        codes = [code_of(socket, ends - time.monotonic()) for socket in watching]
    assert codes == [4401, 4401, 4401, 4403]


def test_a_job_that_ended_before_anybody_watched_is_told_with_its_counts(
    sockets: Sockets, job: BulkJob, api_key: str, engine: Engine
) -> None:
    run_to_end(job, engine)
    with sockets.open(job, key=api_key) as socket:
        assert state(socket)["total"] == 300
        assert code_of(socket) == 1000
