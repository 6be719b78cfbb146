"""Every answer carries a request id: the caller's, or a new one."""

import pytest

from tests.clients import ApiClient


def test_the_callers_id_is_answered() -> None:
    assert ApiClient(None).get("/healthz", x_request_id="a.B_c-1").headers["X-Request-Id"] == "a.B_c-1"


@pytest.mark.parametrize("sent", ["", "x" * 65, "a b", "ü", "a\nb", "<script>"])
def test_an_unfit_id_is_replaced(sent: str) -> None:
    got = ApiClient(None).get("/healthz", x_request_id=sent).headers["X-Request-Id"]
    assert got != sent
    assert len(got) == 32
