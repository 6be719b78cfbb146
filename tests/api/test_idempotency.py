"""A POST that creates can be sent again without creating twice."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from django.db import connection, transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from chronos_site.api.idempotency import idempotent, purge_idempotency_records
from chronos_site.api.models import IdempotencyRecord
from chronos_site.api.problems import Problem
from chronos_site.tenancy import services
from chronos_site.tenancy.models import ApiKey, Workspace
from tests.clients import ApiClient

PATH = "/v1/api-keys"
BODY = {"name": "made", "scopes": ["jobs:read"]}


class Creating(APIView):
    """Stands in for a view that creates; the test says what it does."""

    required_scopes: ClassVar = {"POST": "jobs:write"}
    work: Callable[[Request], Response] | None = None

    @idempotent
    def post(self, request: Request) -> Response:
        assert self.work is not None
        return self.work(request)


def send(plaintext: str, work: Callable[[Request], Response], *, key: str = "k", body: Any = None) -> Response:
    headers = {"Authorization": f"Bearer {plaintext}", "Idempotency-Key": key}
    request = APIRequestFactory().post("/v1/things", body or {}, format="json", headers=headers)
    return Creating.as_view(work=work)(request)


def made() -> int:
    return ApiKey.objects.filter(name="made").count()


def create(request: Request) -> Response:
    key, _ = services.create_api_key(workspace=request.auth.workspace, name="made")  # type: ignore[union-attr]
    return Response({"id": str(key.id), "number": 1.0}, status=201, headers={"Location": "/v1/things/1", "ETag": '"1"'})


def test_the_same_request_again_is_answered_from_the_record(api: ApiClient) -> None:
    first = api.post(PATH, BODY, idempotency_key="a")
    again = api.post(PATH, b'{ "scopes": ["jobs:read"], "name": "made" }', idempotency_key="a")
    assert (first.status_code, again.status_code, made()) == (201, 201, 1)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    assert {**first.json(), "key": None} == again.json()


def test_a_replay_has_the_bytes_of_the_first_answer(api_key: str) -> None:
    first = send(api_key, create).render()
    again = send(api_key, create).render()
    assert (first.content, first["ETag"], first["Location"]) == (again.content, again["ETag"], again["Location"])


def test_without_the_header_each_post_creates(api: ApiClient) -> None:
    assert [api.post(PATH, BODY).status_code for _ in range(2)] == [201, 201]
    assert (made(), IdempotencyRecord.objects.count()) == (2, 0)


def test_the_same_key_with_another_body_or_query_is_422(api: ApiClient) -> None:
    api.post(PATH, BODY, idempotency_key="a")
    answer = api.post(PATH, {**BODY, "name": "other"}, idempotency_key="a")
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert api.post(f"{PATH}?x=1", BODY, idempotency_key="a").status_code == 422


def test_a_key_belongs_to_its_workspace_and_path(api: ApiClient, other_api: ApiClient) -> None:
    assert api.post(PATH, BODY, idempotency_key="a").status_code == 201
    answer = other_api.post(PATH, BODY, idempotency_key="a")
    assert (answer.status_code, "Idempotent-Replayed" in answer.headers, made()) == (201, False, 2)
    key = ApiKey.objects.get(name="made", workspace__name="acme")
    rotated = api.post(f"{PATH}/{key.id}/rotate", idempotency_key="a")
    assert (rotated.status_code, "Idempotent-Replayed" in rotated.headers) == (200, False)


@pytest.mark.parametrize("key", ["", "ü", "a\tb", "x" * 256])
def test_a_key_is_1_to_255_printable_ascii(api: ApiClient, key: str) -> None:
    answer = api.post(PATH, BODY, idempotency_key=key)
    assert (answer.status_code, answer.json()["code"], made()) == (400, "invalid_idempotency_key", 0)


def test_the_longest_key_is_taken(api: ApiClient) -> None:
    assert api.post(PATH, BODY, idempotency_key="x" * 255).status_code == 201


def test_a_refusal_is_not_stored_and_the_key_can_be_used_for_the_corrected_body(api: ApiClient) -> None:
    assert api.post(PATH, {"name": "made"}, idempotency_key="a").status_code == 422
    assert api.post(PATH, BODY, idempotency_key="a").status_code == 201
    assert made() == 1


@pytest.mark.parametrize("error", [ZeroDivisionError("broken"), Problem(409, "state", "No.")])
def test_what_fails_after_it_wrote_leaves_nothing_and_may_be_sent_again(api_key: str, error: Exception) -> None:
    def create_then_fail(request: Request) -> Response:
        create(request)
        raise error

    assert send(api_key, create_then_fail).status_code in {409, 500}
    assert (made(), IdempotencyRecord.objects.count()) == (0, 0)
    assert send(api_key, create).status_code == 201
    assert made() == 1


def test_no_secret_is_in_the_record(api: ApiClient) -> None:
    plaintext = api.post(PATH, BODY, idempotency_key="a").json()["key"]
    record = IdempotencyRecord.objects.get()
    assert plaintext not in record.body
    assert api.post(PATH, BODY, idempotency_key="a").headers["Cache-Control"] == "no-store"


@pytest.mark.django_db(transaction=True)
def test_a_reply_lost_after_the_commit_is_answered_again(api_key: str) -> None:
    def create_and_break_the_reply(request: Request) -> Response:
        def fail() -> None:
            raise ConnectionResetError

        transaction.on_commit(fail)
        return create(request)

    assert send(api_key, create_and_break_the_reply).status_code == 500
    assert made() == 1
    again = send(api_key, create)
    assert (again.status_code, again["Idempotent-Replayed"], made()) == (201, "true", 1)


@pytest.mark.django_db(transaction=True)
def test_hooks_on_commit_run_once_and_after_the_record_is_there(api_key: str) -> None:
    seen: list[tuple[int, bool]] = []

    def create_with_hook(request: Request) -> Response:
        with transaction.atomic():
            transaction.on_commit(lambda: seen.append((IdempotencyRecord.objects.count(), connection.in_atomic_block)))
            return create(request)

    send(api_key, create_with_hook)
    send(api_key, create_with_hook)
    assert seen == [(1, False)]


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_creates_and_the_other_is_told_to_come_back(api_key: str) -> None:
    inside, go_on = threading.Event(), threading.Event()
    answers: list[Response] = []

    def create_slowly(request: Request) -> Response:
        inside.set()
        assert go_on.wait(20)
        return create(request)

    def first() -> None:
        try:
            answers.append(send(api_key, create_slowly))
        finally:
            connection.close()

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(20)
    busy = send(api_key, create)
    other_key = send(api_key, create, key="another")
    go_on.set()
    thread.join(20)
    assert (busy.status_code, busy.data["code"], busy["Retry-After"]) == (409, "idempotency_busy", "1")
    assert other_key.status_code == 201
    assert [answer.status_code for answer in answers] == [201]
    assert send(api_key, create)["Idempotent-Replayed"] == "true"
    assert made() == 2


@pytest.mark.django_db(transaction=True)
def test_a_crowd_with_one_key_creates_once(api_key: str) -> None:
    start = threading.Barrier(3)
    statuses: list[int] = []

    def one_of_them() -> None:
        try:
            start.wait(20)
            statuses.extend(send(api_key, create).status_code for _ in range(3))
        finally:
            connection.close()

    crowd = [threading.Thread(target=one_of_them) for _ in range(3)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(30)
    assert made() == 1
    assert len(statuses) == 9
    assert set(statuses) <= {201, 409}


def test_after_a_day_a_key_is_free_again(api: ApiClient) -> None:
    api.post(PATH, BODY, idempotency_key="a")
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(hours=24, seconds=1))
    answer = api.post(PATH, {**BODY, "scopes": ["jobs:write"]}, idempotency_key="a")
    assert (answer.status_code, "Idempotent-Replayed" in answer.headers, made()) == (201, False, 2)


def test_the_purge_takes_what_is_old_and_says_how_many(api: ApiClient, workspace: Workspace) -> None:
    place = {"workspace_id": workspace.id, "method": "POST", "path": PATH, "body_hash": "", "status": 201, "body": "{}"}
    IdempotencyRecord.objects.bulk_create(IdempotencyRecord(key=str(number), **place) for number in range(1500))
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(hours=25))
    api.post(PATH, BODY, idempotency_key="a")
    assert purge_idempotency_records(older_than=timezone.now() - timedelta(hours=24)) == 1500
    assert list(IdempotencyRecord.objects.values_list("key", flat=True)) == ["a"]
