"""The two ends of Chronos as a test sees them: the API's caller, and a receiver that can be told how to behave."""

import json as jsonlib
from typing import TYPE_CHECKING, Any, TypeAlias

from django.test import Client

from chronos_site.stack.receiver import Answer, Received, Receiver

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse

Json = Any
ApiResponse: TypeAlias = "_MonkeyPatchedWSGIResponse"


class ApiClient:
    """Calls the API with one key: `api.post("/v1/schedules", {...}, idempotency_key="a")`.

    Keyword arguments are headers (underscores become hyphens). A body given as bytes is sent as it is.
    """

    def __init__(self, key: str | None) -> None:
        self.key = key
        self._client = Client(raise_request_exception=False)

    def with_key(self, key: str | None) -> "ApiClient":
        return ApiClient(key)

    def get(self, path: str, **headers: str) -> ApiResponse:
        return self.call("GET", path, None, headers)

    def post(self, path: str, json: Json = None, **headers: str) -> ApiResponse:
        return self.call("POST", path, json, headers)

    def put(self, path: str, json: Json = None, **headers: str) -> ApiResponse:
        return self.call("PUT", path, json, headers)

    def patch(self, path: str, json: Json = None, **headers: str) -> ApiResponse:
        return self.call("PATCH", path, json, headers)

    def delete(self, path: str, **headers: str) -> ApiResponse:
        return self.call("DELETE", path, None, headers)

    def call(self, method: str, path: str, json: Json, headers: dict[str, str]) -> ApiResponse:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        content_type = sent.pop("content-type", "application/json")
        if self.key is not None:
            sent.setdefault("authorization", f"Bearer {self.key}")
        body = json if isinstance(json, bytes) else b"" if json is None else jsonlib.dumps(json).encode()
        response: ApiResponse = self._client.generic(method, path, body, content_type=content_type, headers=sent)
        return response


class ProgrammableReceiver(Receiver):
    """A receiver with set answers: `receiver.answer(Answer(status=503), Answer(), path="/x")`.

    Answers to a path are used in turn; the last one stays. A path without answers uses those of `path=None`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._answers: dict[str | None, list[Answer]] = {}

    def answer(self, *answers: Answer, path: str | None = None) -> None:
        self._answers[path] = list(answers)

    def answer_to(self, request: Received) -> Answer:
        planned = self._answers.get(request.path) or self._answers.get(None)
        if not planned:
            return Answer()
        return planned.pop(0) if len(planned) > 1 else planned[0]

    def release(self) -> None:
        """Let every request that hangs or waits go on."""
        self.released.set()
