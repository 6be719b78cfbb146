"""Names that lead elsewhere at the send than at the save: judged at the send, and connected to what was judged.

127.0.0.1 stands for a public address, for these engines may call it; 10.0.0.1 is a private one.
"""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from chronos_site.stack.receiver import Answer
from execution import transitions
from execution.dispatch import resolver
from execution.dispatch.engine import Engine
from execution.dispatch.runtime import build_engine
from execution.models import DeadLetter, Execution
from tests.clients import ApiClient, ProgrammableReceiver
from tests.making import states_of
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "hooks.example.com"
PUBLIC, REACHABLE, PRIVATE = "93.184.216.34", "127.0.0.1", "10.0.0.1"
REFUSED = "the host resolves to an address that may not be called"


class Names:
    """What the system's resolver says of `NAME`: each answer once, the last one for ever. Other names as they are."""

    def __init__(self) -> None:
        self.asked = 0
        self._answers: list[list[str]] = []
        self._real = socket.getaddrinfo

    def lead(self, *answers: list[str]) -> None:
        self._answers = list(answers)

    def getaddrinfo(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != NAME:
            return self._real(host, port, *args, **kwargs)
        self.asked += 1
        addresses = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [entry for address in addresses for entry in self._real(address, port, *args, **kwargs)]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    known = Names()
    monkeypatch.setattr(socket, "getaddrinfo", known.getaddrinfo)
    monkeypatch.setattr(resolver, "REMEMBER_S", 0.0)
    return known


@pytest.fixture
def strict_engine(settings: Settings, transactional_db: None) -> Iterator[Engine]:
    """One that may call public addresses only, as in production."""
    settings.CHRONOS_EGRESS_ALLOW = []
    running = build_engine(name="strict")
    running.start()
    yield running
    running.begin_stop()
    running.stop(1)


def save(api: ApiClient, receiver: ProgrammableReceiver, host: str = NAME) -> Execution:
    body = {
        "target": {"url": f"http://{host}:{receiver.port}/hook"},
        "delay_s": 0,
        "delivery": {"retry": {"max_attempts": 5, "initial_backoff_s": 0.1, "jitter": "none"}},
    }
    made = api.post("/v1/schedules", body)
    assert made.status_code == 201, made.content
    return Execution.objects.get(id=made.json()["execution_id"])


def send(engine: Engine, row: Execution, state: str) -> None:
    queued = transitions.queue_pending(ids=[row.id]) or transitions.queue_retrying(horizon_s=5, most=1)
    engine.submit(queued)
    wait_until(lambda: states_of([row.id]) == {row.id: state}, told=lambda: str(states_of([row.id])))


def assert_refused(api: ApiClient, row: Execution, *, attempts: int) -> None:
    """Failed for good, and a dead letter says why to whoever asks the API; not where the name leads."""
    row.refresh_from_db()
    assert (row.state, row.state_reason, row.attempt) == ("FAILED", "target_refused", attempts)
    assert row.last_error_text == REFUSED
    [letter] = api.get("/v1/dead-letters?reason=target_refused").json()["items"]
    assert (letter["id"], letter["attempts"]) == (str(row.id), attempts)
    assert PRIVATE not in str(letter) + api.get(f"/v1/executions/{row.id}").content.decode()


def test_a_name_that_is_public_at_the_save_and_private_at_the_send_is_refused_and_dead_lettered_with_that_reason(
    engine: Engine, api: ApiClient, receiver: ProgrammableReceiver, names: Names
) -> None:
    names.lead([PUBLIC])
    row = save(api, receiver)
    names.lead([PRIVATE])
    send(engine, row, "FAILED")
    assert_refused(api, row, attempts=1)
    assert receiver.requests == []


def test_a_name_that_is_private_at_the_save_and_public_at_the_send_is_called(
    engine: Engine, api: ApiClient, receiver: ProgrammableReceiver, names: Names
) -> None:
    names.lead([PRIVATE])
    row = save(api, receiver)
    names.lead([REACHABLE])
    send(engine, row, "SUCCEEDED")
    [request] = receiver.requests
    assert request.headers["host"] == f"{NAME}:{receiver.port}"
    assert not DeadLetter.objects.exists()


def test_a_name_that_changes_between_judgement_and_connection_changes_nothing(
    engine: Engine, api: ApiClient, receiver: ProgrammableReceiver, names: Names
) -> None:
    row = save(api, receiver)
    names.lead([REACHABLE], [PRIVATE])
    send(engine, row, "SUCCEEDED")
    assert len(receiver.requests) == 1
    assert names.asked == 1, "nobody asks again once the address is judged"


def test_a_name_that_turns_private_between_two_attempts_is_refused_although_its_connection_is_still_open(
    engine: Engine, api: ApiClient, receiver: ProgrammableReceiver, names: Names
) -> None:
    receiver.answer(Answer(status=503))
    row = save(api, receiver)
    names.lead([REACHABLE], [PRIVATE])
    send(engine, row, "RETRYING")
    assert len(receiver.requests) == 1
    send(engine, row, "FAILED")
    assert_refused(api, row, attempts=2)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("addresses", [[REACHABLE, PRIVATE], [PRIVATE, REACHABLE], [REACHABLE, "fd00::1"]])
def test_a_name_with_a_public_and_a_private_address_is_refused_whichever_comes_first(
    engine: Engine, api: ApiClient, receiver: ProgrammableReceiver, names: Names, addresses: list[str]
) -> None:
    names.lead(addresses)
    row = save(api, receiver)
    send(engine, row, "FAILED")
    assert_refused(api, row, attempts=1)
    assert receiver.requests == []


def test_a_name_that_has_no_address_now_is_tried_again_and_refused_once_it_leads_to_a_private_one(
    engine: Engine, api: ApiClient, receiver: ProgrammableReceiver, names: Names
) -> None:
    row = save(api, receiver)
    names.lead([], [PRIVATE])
    send(engine, row, "RETRYING")
    send(engine, row, "FAILED")
    assert_refused(api, row, attempts=2)


def test_by_the_system_s_own_resolver_a_name_of_this_machine_is_taken_at_the_save_and_refused_at_the_send(
    strict_engine: Engine, api: ApiClient, receiver: ProgrammableReceiver
) -> None:
    row = save(api, receiver, host="localhost")
    send(strict_engine, row, "FAILED")
    assert_refused(api, row, attempts=1)
    assert receiver.requests == []
