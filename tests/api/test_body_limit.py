"""Bodies over the limit are refused before the site reads them: against the real web process."""

import http.client
import json
import os
import socket
import sys
from collections.abc import Iterator
from subprocess import PIPE, STDOUT, Popen

import pytest

from chronos_site.stack.processes import free_port

LIMIT = 10_000


@pytest.fixture(scope="module")
def web() -> Iterator[int]:
    """The port of a uvicorn that serves the site."""
    port = free_port()
    environment = {**os.environ, "CHRONOS_MAX_BODY_BYTES": str(LIMIT)}
    command = [sys.executable, "-m", "uvicorn", "chronos_site.asgi:application", "--port", str(port)]
    with Popen(command, env=environment, stdout=PIPE, stderr=STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if "Uvicorn running" in line:
                    break
            else:
                pytest.fail("The web process ended before it was ready.")
            yield port
        finally:
            process.terminate()
            process.stdout.read()


def ask(port: int, method: str, path: str, **kwargs: object) -> tuple[http.client.HTTPResponse, bytes]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        link.request(method, path, **kwargs)  # type: ignore[arg-type]
        answer = link.getresponse()
        return answer, answer.read()
    finally:
        link.close()


def test_a_declared_length_above_the_limit_is_413(web: int) -> None:
    answer, body = ask(web, "POST", "/v1/schedules", body=b"x" * (LIMIT + 1), headers={"X-Request-Id": "mine"})
    problem = json.loads(body)
    assert (answer.status, problem["code"], problem["request_id"]) == (413, "body_too_large", "mine")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["X-Request-Id"] == "mine"


def test_a_declared_length_is_refused_before_the_body_arrives(web: int) -> None:
    with socket.create_connection(("127.0.0.1", web), timeout=20) as link:
        link.sendall(b"POST /v1/schedules HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n")
        assert link.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_streamed_body_is_cut_off_where_it_passes_the_limit(web: int) -> None:
    with socket.create_connection(("127.0.0.1", web), timeout=20) as link:
        link.sendall(b"POST /v1/schedules HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        # Less than is announced, more than is taken: no last chunk comes.
        link.sendall(b"%x\r\n" % (2 * LIMIT) + b"x" * (LIMIT + 5000))
        assert link.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_within_the_limit_reaches_the_site(web: int) -> None:
    answer, body = ask(web, "POST", "/v1/schedules", body=iter([b"x" * 100] * 50))
    assert (answer.status, json.loads(body)["code"]) == (401, "missing_key")


def test_the_web_process_answers_probes_and_local_files(web: int) -> None:
    assert ask(web, "GET", "/healthz")[0].status == 200
    answer, body = ask(web, "GET", "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css")
    assert (answer.status, len(body) > 10_000) == (200, True)
