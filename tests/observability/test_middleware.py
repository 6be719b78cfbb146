"""Every answer carries a request id: the caller's, or a new one."""

import asyncio

import pytest
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.test import RequestFactory

from chronos_site.observability import context
from chronos_site.observability.middleware import RequestIdMiddleware
from tests.clients import ApiClient


def test_the_callers_id_is_answered() -> None:
    assert ApiClient(None).get("/healthz", x_request_id="a.B_c-1").headers["X-Request-Id"] == "a.B_c-1"


@pytest.mark.parametrize("sent", ["", "x" * 65, "a b", "ü", "a\nb", "<script>"])
def test_an_unfit_id_is_replaced(sent: str) -> None:
    got = ApiClient(None).get("/healthz", x_request_id=sent).headers["X-Request-Id"]
    assert got != sent
    assert len(got) == 32


def test_the_middleware_works_in_an_event_loop_too() -> None:
    seen: list[str | None] = []

    async def view(_request: HttpRequest) -> HttpResponse:
        seen.append(context.request_id.get())
        return HttpResponse()

    async def ask() -> HttpResponseBase:
        answer = RequestIdMiddleware(view)(RequestFactory().get("/", headers={"X-Request-Id": "mine"}))
        assert not isinstance(answer, HttpResponseBase)
        return await answer

    assert asyncio.run(ask())["X-Request-Id"] == "mine"
    assert seen == ["mine"]
