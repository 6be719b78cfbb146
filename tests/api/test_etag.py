"""If-Match guards a change by the version that the caller has seen."""

import pytest
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory

from chronos_site.api.etag import check_if_match, expected_version, set_etag
from chronos_site.api.problems import Problem


def request_with(tag: str | None) -> Request:
    return Request(APIRequestFactory().get("/", headers={} if tag is None else {"If-Match": tag}))


@pytest.mark.parametrize("tag", [None, "*", '"3"', 'W/"3"', " 3 "])
def test_the_seen_version_and_no_version_pass(tag: str | None) -> None:
    check_if_match(request_with(tag), 3)


@pytest.mark.parametrize("tag", ['"2"', '"abc"', "", '"3", "4"', '"٣"', '"99999999999"'])
def test_any_other_tag_is_412(tag: str) -> None:
    with pytest.raises(Problem) as refused:
        check_if_match(request_with(tag), 3)
    assert (refused.value.status_code, refused.value.code) == (412, "version_mismatch")


def test_the_tag_that_is_answered_is_the_one_that_is_taken() -> None:
    response = Response()
    set_etag(response, 7)
    assert expected_version(request_with(response["ETag"])) == 7
