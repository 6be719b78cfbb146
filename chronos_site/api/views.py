"""What the API answers where no resource does: unmatched paths, errors outside DRF, its own description."""

import json
from functools import cache

from django.http import HttpRequest, HttpResponse
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.generators import SchemaGenerator

from chronos_site.api.problems import Problem, not_found, problem_response, server_error

API_PREFIX = "/v1/"


@csrf_exempt
def unmatched(request: HttpRequest) -> HttpResponse:
    """Every path under /v1 that is no resource."""
    return problem_response(not_found())


def openapi_json(request: HttpRequest) -> HttpResponse:
    return HttpResponse(_document(), content_type="application/vnd.oai.openapi+json")


@cache
def _document() -> bytes:
    """The whole API, whoever asks; it cannot change while the process runs."""
    return json.dumps(SchemaGenerator().get_schema(request=None, public=True), default=str).encode()


def handle_400(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path.startswith(API_PREFIX):
        return problem_response(Problem(400, "bad_request", "The request cannot be read. Check host and headers."))
    return defaults.bad_request(request, exception)


def handle_500(request: HttpRequest) -> HttpResponse:
    """Django has logged the error; the answer names the request's id alone."""
    if request.path.startswith(API_PREFIX):
        return problem_response(server_error())
    return defaults.server_error(request)
