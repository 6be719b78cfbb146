"""Bulk jobs over the API: uploads through a real web process, everything else through Django's own client."""

import io
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from bulk.models import BulkJob
from chronos_site.stack.processes import Child, free_port
from chronos_site.tenancy import services as tenancy
from chronos_site.tenancy.models import Scope, Workspace
from execution.dispatch.engine import Engine
from tests.bulk.pump import make_bulk_job, run_to_end, turn
from tests.clients import ApiClient, ApiResponse, ProgrammableReceiver
from tests.making import make_job
from tests.processes import SiteProcesses, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

URL = "https://example.com/{{id}}"
MIB = 1024 * 1024


def upload(api: ApiClient, content: bytes, headers: dict[str, str] | None = None, **fields: str) -> ApiResponse:
    """A form with a file, through Django's client."""
    values: dict[str, Any] = {"job": "a-job", **fields}
    request = requests.Request("POST", "http://x/", data=values, files={"file": ("rows.csv", content)}).prepare()
    body = request.body
    assert isinstance(body, bytes)
    return api.post("/v1/bulk-jobs", body, content_type=str(request.headers["Content-Type"]), **(headers or {}))


def objects() -> list[Path]:
    """Files in the storage's folder."""
    folder = Path(os.environ["STORAGE_URL"].removeprefix("file://"))
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture(autouse=True)
def storage_clean() -> None:
    for path in objects():
        path.unlink()


def test_an_upload_becomes_a_job_that_is_delivered_and_has_results(
    api: ApiClient, engine: Engine, workspace: Workspace, receiver: ProgrammableReceiver
) -> None:
    make_job(workspace, receiver.url("/{{id}}"), name="a-job")
    answer = upload(api, b"id\n1\n2\n")
    made = answer.json()
    assert (answer.status_code, made["state"], made["file_name"]) == (201, "UPLOADED", "rows.csv")
    assert answer["Location"] == f"/v1/bulk-jobs/{made['id']}"
    assert api.get(f"/v1/bulk-jobs/{made['id']}/results").json()["code"] == "no_results"
    run_to_end(BulkJob.objects.get(), engine)
    path = f"/v1/bulk-jobs/{made['id']}"
    assert api.get(path).json()["state"] == "COMPLETED"
    told = api.get(f"{path}/progress").json()
    assert (told["total"], told["succeeded"], told["left"], told["results"]) == (2, 2, 0, True)
    rows = api.get(f"{path}/records?state=SUCCEEDED&limit=1").json()
    assert (rows["items"][0]["row"], rows["items"][0]["values"]) == (2, ["2"])
    assert rows["next_cursor"]
    results = api.get(f"{path}/results")
    assert results["Content-Type"] == "text/csv; charset=utf-8"
    assert b"".join(results.streaming_content).splitlines()[1] == b"1,SUCCEEDED,1,http_200,,ok"  # type: ignore[attr-defined]
    assert [item["id"] for item in api.get("/v1/bulk-jobs?state=COMPLETED").json()["items"]] == [made["id"]]
    assert api.get("/v1/bulk-jobs?state=RUNNING").json()["items"] == []


@pytest.mark.parametrize(
    ("content", "fields", "status", "code", "pointer"),
    [
        (b"", {}, 422, "empty_file", "/file"),
        (b"PK\x03\x04" + bytes(100), {}, 422, "encoding", "/file"),
        ("id\n1\n".encode("utf-16"), {}, 422, "encoding", "/file"),
        (b"id,id\n", {}, 422, "duplicate_header", "/file"),
        (b"other\n1\n", {}, 422, "unknown_column", "/target/url"),
        (b"id\n", {"job": "no-such"}, 422, "job_definition_not_found", "/job"),
        (b"id\n", {"delimiter": "ab"}, 422, "invalid", "/delimiter"),
        (b"id\n", {"max_invalid_share": "2"}, 422, "invalid", "/max_invalid_share"),
        (b"id\n", {"start": "maybe"}, 422, "invalid", "/start"),
        (b"id\n", {"colour": "red"}, 422, "invalid", "/colour"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_a_place_and_leaves_nothing(
    api: ApiClient,
    workspace: Workspace,
    content: bytes,
    fields: dict[str, str],
    status: int,
    code: str,
    pointer: str,
) -> None:
    make_job(workspace, URL, name="a-job")
    answer = upload(api, content, None, **fields)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert problem["errors"][0]["pointer"] == pointer
    assert not BulkJob.objects.exists()
    assert objects() == []


def test_a_dry_run_shows_the_first_rows_and_keeps_nothing(api: ApiClient, workspace: Workspace) -> None:
    make_job(workspace, URL, name="a-job", payload={"n": "{{n}}"})
    answer = upload(api, b"id;n\na b;1\n2\n.;3\n", delimiter=";", dry_run="true")
    assert answer.status_code == 200
    first, second, third = answer.json()["rows"]
    assert (first["target"]["url"], first["payload"]) == ("https://example.com/a%20b", {"n": "1"})
    assert second["code"] == "too_few_fields"
    assert third["code"]
    assert third["target"] is None
    assert objects() == []


def test_the_same_key_and_file_answer_the_same_job_once(api: ApiClient, workspace: Workspace) -> None:
    make_job(workspace, URL, name="a-job")
    first = upload(api, b"id\n1\n", {"idempotency-key": "k"})
    again = upload(api, b"id\n1\n", {"idempotency-key": "k"})
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert again["Idempotent-Replayed"] == "true"
    assert upload(api, b"id\n2\n", {"idempotency-key": "k"}).status_code == 422
    assert BulkJob.objects.count() == len(objects()) == 1


def test_actions_are_safe_to_repeat_and_say_what_is_impossible(api: ApiClient, workspace: Workspace) -> None:
    bulk = make_bulk_job(workspace, make_job(workspace, URL), "id\n1\n")
    path = f"/v1/bulk-jobs/{bulk.id}"
    assert api.post(f"{path}/pause").json()["progress"]["held"] is True
    turn()
    assert api.get(path).json()["state"] == "PAUSED"
    assert api.post(f"{path}/pause").status_code == 200
    refused = api.post(f"{path}/retry-failed").json()
    assert (refused["code"], refused["state"]) == ("wrong_state", "PAUSED")
    assert api.post(f"{path}/cancel").status_code == 202
    turn()
    turn()
    assert api.post(f"{path}/cancel").json()["state"] == "CANCELLED"
    assert api.post(f"{path}/start").status_code == 409


def test_another_tenant_sees_nothing_of_a_job(api: ApiClient, workspace: Workspace, other_workspace: Workspace) -> None:
    bulk = make_bulk_job(workspace, make_job(workspace, URL), "id\n1\n")
    _, key = tenancy.create_api_key(workspace=other_workspace, name="theirs")
    theirs = api.with_key(key)
    path = f"/v1/bulk-jobs/{bulk.id}"
    assert theirs.get("/v1/bulk-jobs").json()["items"] == []
    for below in ("", "/progress", "/records", "/results"):
        assert theirs.get(path + below).status_code == 404
    for verb in ("start", "pause", "cancel", "retry-failed"):
        assert theirs.post(f"{path}/{verb}").status_code == 404


# --- through the real web process ------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, transactional_db: None) -> Iterator[tuple[str, Child]]:
    processes = SiteProcesses(tmp_path)
    port = free_port()
    child = processes.web(port=port, CHRONOS_BULK_MAX_BYTES=str(64 * MIB), CHRONOS_WEB_THREADS="4")
    base = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(base), timeout_s=30)
        yield base, child
    finally:
        processes.stop()


def _answers(base: str) -> bool:
    try:
        return requests.get(f"{base}/healthz", timeout=2).ok
    except requests.ConnectionError:
        return False


def test_a_large_file_goes_through_the_web_process_in_flat_memory(
    site: tuple[str, Child], workspace: Workspace, api_key: str
) -> None:
    base, child = site
    make_job(workspace, URL, name="a-job")
    content = b"id\n" + b"x" * 63 + b"\n" + b"0123456789abcdef0123456789abcde\n" * (60 * MIB // 32)
    process = psutil.Process(child.pid)
    before = process.memory_info().rss
    answer = _post(base, api_key, content)
    grown = process.memory_info().rss - before
    assert answer.status_code == 201, answer.text
    assert answer.json()["size_bytes"] == len(content)
    assert grown < 30 * MIB


def test_a_file_over_the_limit_is_refused_and_leaves_nothing(
    site: tuple[str, Child], workspace: Workspace, api_key: str
) -> None:
    base, _ = site
    make_job(workspace, URL, name="a-job")
    # Three gigabytes are declared; whoever reads the answer need not send them.
    told = _raw(base, api_key, 3 * 1024 * MIB, b"")
    assert told.startswith(b"HTTP/1.1 413 ")
    assert b"body_too_large" in told
    answer = _post(base, api_key, b"id\n" + b"1" * (64 * MIB + 10))
    assert (answer.status_code, answer.json()["code"]) == (413, "file_too_large")
    assert objects() == []


def test_a_stranger_is_refused_before_the_file_is_taken(site: tuple[str, Child]) -> None:
    base, _ = site
    told = _raw(base, "chr_" + "x" * 43, 10 * MIB, b"--x\r\n")
    assert told.startswith(b"HTTP/1.1 401 ")
    assert objects() == []


def test_an_upload_that_breaks_off_leaves_nothing_and_others_go_on(
    site: tuple[str, Child], workspace: Workspace, api_key: str
) -> None:
    base, _ = site
    make_job(workspace, URL, name="a-job")
    links = [_open(base, api_key, 10 * MIB, _form_start() + b"id\n" + b"1\n" * 100_000) for _ in range(2)]
    time.sleep(0.5)
    # Two of four threads wait for slow clients; a third upload is told to come back, and the API answers.
    busy = _post(base, api_key, b"id\n1\n")
    assert (busy.status_code, busy.json()["code"]) == (503, "uploads_busy")
    assert requests.get(f"{base}/v1/bulk-jobs", headers=_bearer(api_key), timeout=10).ok
    for link in links:
        link.close()
    wait_until(lambda: objects() == [], timeout_s=10)
    wait_until(lambda: _post(base, api_key, b"id\n1\n").status_code == 201, timeout_s=10)
    assert BulkJob.objects.count() == 1


def test_a_length_is_needed(site: tuple[str, Child], workspace: Workspace, api_key: str) -> None:
    base, _ = site
    answer = requests.post(
        f"{base}/v1/bulk-jobs",
        data=iter([b"--x\r\n"]),
        headers={**_bearer(api_key), "Content-Type": "multipart/form-data; boundary=x"},
        timeout=10,
    )
    assert (answer.status_code, answer.json()["code"]) == (411, "length_required")


def test_a_key_without_the_scope_uploads_nothing(site: tuple[str, Child], workspace: Workspace, api_key: str) -> None:
    base, _ = site
    _, key = tenancy.create_api_key(workspace=workspace, name="reads", scopes=[Scope.EXECUTIONS_READ.value])
    assert _post(base, key, b"id\n1\n").status_code == 403
    assert objects() == []


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _post(base: str, key: str, content: bytes) -> requests.Response:
    return requests.post(
        f"{base}/v1/bulk-jobs",
        data={"job": "a-job"},
        files={"file": ("rows.csv", io.BytesIO(content))},
        headers=_bearer(key),
        timeout=60,
    )


def _form_start() -> bytes:
    return b'--x\r\nContent-Disposition: form-data; name="file"; filename="rows.csv"\r\n\r\n'


def _open(base: str, key: str, length: int, body: bytes) -> socket.socket:
    port = int(base.rpartition(":")[2])
    link = socket.create_connection(("127.0.0.1", port), timeout=20)
    head = (
        f"POST /v1/bulk-jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\n"
    )
    link.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n".encode() + body)
    return link


def _raw(base: str, key: str, length: int, body: bytes) -> bytes:
    with _open(base, key, length, body) as link:
        told = b""
        # Every answer here ends the connection.
        while piece := link.recv(4096):
            told += piece
        return told
