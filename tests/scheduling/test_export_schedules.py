"""`export_schedules`: what it writes, `apply_schedules` reads back without a change, and no secret is in it."""

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.core.management.base import CommandError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronos_site.infra.clock import database_now
from chronos_site.tenancy.models import Workspace
from scheduling import recurring, services
from scheduling.files import export
from scheduling.files.export import Exported
from scheduling.files.yaml_text import read_yaml
from scheduling.models import Schedule
from scheduling.recurring import Recurring
from tests.making import make_job

TARGET = {"url": "https://example.com/", "method": "POST", "headers": {}}


def run(command: str, *arguments: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command(command, *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def make(workspace: Workspace, key: str | None, **fields: Any) -> Schedule:
    fields.setdefault("target", TARGET)
    if "every_s" not in fields:
        fields.setdefault("cron", "0 9 * * *")
    return recurring.create_recurring(workspace=workspace, new=Recurring(external_key=key, **fields))


def make_many_kinds(workspace: Workspace) -> None:
    soon = database_now().replace(microsecond=123456) + timedelta(days=1)
    job = make_job(workspace, "https://example.com/job", name="send invoice: 'daily'")
    make(workspace, "plain")
    make(workspace, "macro", cron="@daily", timezone="America/New_York", tags=["a", "b:c"])
    make(workspace, "interval", every_s=5400, timezone="Asia/Kolkata", starts_at=soon, ends_at=soon + timedelta(days=9))
    make(workspace, "no", every_s=90, anchor=soon, jitter_s=2.5, max_runs=7, pause_after_failures=3)
    make(workspace, "2030-01-01", misfire="skip", misfire_grace_s=5, catch_up_window_s=10, misfire_limit=3)
    make(
        workspace, "of a job", target=None, job_definition=job, payload=[None, True, 1, 1.5, "no", "1e3", "a\nb\u2028"]
    )
    make(workspace, "ä/☂: # [x]", overlap="queue_one", delivery={"timeout_s": 5.0, "retry": {"max_attempts": 2}})
    make(workspace, "message", target={"topic": "orders", "key": "k", "partition": 2, "headers": {"X-Team": "a"}})
    paused = make(workspace, "paused", cron="*/5 * * * * *")
    recurring.pause_schedule(workspace=workspace, schedule_id=paused.id)


@pytest.mark.django_db
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_is_exported_is_applied_without_a_change(workspace: Workspace, tmp_path: Path, form: list[str]) -> None:
    make_many_kinds(workspace)
    before = list(Schedule.objects.order_by("id").values())
    path = tmp_path / "out"
    assert run("export_schedules", "--workspace", workspace.name, "--output", str(path), *form) == (
        "",
        "9 schedules exported\n",
    )
    assert run("apply_schedules", str(path), "--workspace", workspace.name) == ("9 unchanged\n", "")
    assert list(Schedule.objects.order_by("id").values()) == before


@pytest.mark.django_db
def test_an_export_makes_the_same_schedules_in_another_workspace(
    workspace: Workspace, other_workspace: Workspace, tmp_path: Path
) -> None:
    make_many_kinds(workspace)
    make_job(other_workspace, "https://example.com/job", name="send invoice: 'daily'")
    path = tmp_path / "out.yaml"
    first, _ = run("export_schedules", "--workspace", workspace.name)
    path.write_text(first)
    out, _ = run("apply_schedules", str(path), "--workspace", other_workspace.name)
    assert out.splitlines()[-1] == "9 made"
    second, _ = run("export_schedules", "--workspace", other_workspace.name)
    assert second.replace(other_workspace.name, workspace.name, 1) == first


@pytest.mark.django_db
def test_only_what_differs_from_the_default_is_written(workspace: Workspace) -> None:
    make(workspace, "a", payload={"n": 1})
    out, _ = run("export_schedules", "--workspace", workspace.name)
    assert out.splitlines()[1:] == [
        "schedules:",
        "- key: a",
        "  cron: 0 9 * * *",
        "  timezone: UTC",
        "  target:",
        "    url: https://example.com/",
        "    method: POST",
        "  payload:",
        "    n: 1",
    ]


@pytest.mark.django_db
def test_references_to_secrets_are_written_as_they_are_and_read_back_without_a_change(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.secret_namespaces = ["acme"]
    workspace.save()
    target = {
        **TARGET,
        "headers": {"X-Api-Key": "secret://acme/hooks/key"},
        "auth": {"type": "basic", "username": "bob", "password": "secret://acme/hooks/password"},
        "signing": {"secret": "secret://acme/hooks/signing"},
    }
    make(workspace, "a", target=target, delivery={"headers": {"X-Signature": "secret://acme/hooks/cookie"}})
    path = tmp_path / "out.yaml"
    _, told = run("export_schedules", "--workspace", workspace.name, "--output", str(path))
    assert "not written" not in told
    for key in ("key", "password", "signing", "cookie"):
        assert f": secret://acme/hooks/{key}\n" in path.read_text()
    assert run("apply_schedules", str(path), "--workspace", workspace.name)[0] == "1 unchanged\n"


@pytest.mark.django_db
def test_secrets_in_headers_are_not_written_and_are_left_as_they_are_when_applied(
    workspace: Workspace, other_workspace: Workspace, tmp_path: Path
) -> None:
    headers = {"Authorization": "Bearer sesame", "X-Api-Key": "sesame", "Cookie": "s=sesame", "X-Env": "test"}
    row = make(
        workspace,
        "a",
        target={**TARGET, "headers": headers},
        delivery={"headers": {"x-signature": "sesame"}},
    )
    path = tmp_path / "out.yaml"
    _, told = run("export_schedules", "--workspace", workspace.name, "--output", str(path))
    text = path.read_text()
    assert "sesame" not in text + told
    assert "X-Env: test" in text
    assert sorted(told.splitlines()[1:]) == [
        f"not written, for it looks like a secret: a: {place}"
        for place in (
            "delivery.headers.x-signature",
            "target.headers.Authorization",
            "target.headers.Cookie",
            "target.headers.X-Api-Key",
        )
    ]
    assert run("apply_schedules", str(path), "--workspace", workspace.name)[0] == "1 unchanged\n"
    path.write_text(text.replace("0 9", "0 10").replace("Authorization", "authorization"))
    run("apply_schedules", str(path), "--workspace", workspace.name)
    row.refresh_from_db()
    assert row.cron == "0 10 * * *"
    assert row.target == {**TARGET, "headers": {"authorization": "Bearer sesame", **dict(list(headers.items())[1:])}}
    assert row.delivery == {"headers": {"x-signature": "sesame"}}
    with pytest.raises(CommandError, match=r" has 4 faults; nothing was changed\.$"):
        run("apply_schedules", str(path), "--workspace", other_workspace.name)


@pytest.mark.django_db
def test_schedules_without_a_key_are_counted_or_found_again_by_their_id(workspace: Workspace, tmp_path: Path) -> None:
    make(workspace, "a")
    keyless = make(workspace, None, cron="0 7 * * *")
    out, err = run("export_schedules", "--workspace", workspace.name)
    assert [item["key"] for item in yaml.safe_load(out)["schedules"]] == ["a"]
    assert "1 without a key left out; --all writes them under their ids" in err
    path = tmp_path / "out.yaml"
    run("export_schedules", "--workspace", workspace.name, "--all", "--output", str(path))
    assert run("apply_schedules", str(path), "--workspace", workspace.name)[0] == "2 unchanged\n"
    path.write_text(path.read_text().replace("0 7", "0 8"))
    run("apply_schedules", str(path), "--workspace", workspace.name)
    keyless.refresh_from_db()
    assert (keyless.cron, keyless.external_key, Schedule.objects.count()) == ("0 8 * * *", None, 2)


@pytest.mark.django_db
def test_only_living_recurring_schedules_of_the_workspace_are_written_and_a_prefix_narrows_them(
    workspace: Workspace, other_workspace: Workspace
) -> None:
    make(workspace, "billing/a")
    make(workspace, "billing_b")
    make(other_workspace, "billing/theirs")
    ended = make(workspace, "billing/ended")
    recurring.cancel_recurring(workspace=workspace, schedule_id=ended.id)
    once = services.NewSchedule(delay_s=900, target=TARGET, external_key="billing/once")
    services.create_schedules(workspace=workspace, new=[once], traceparent="")
    out, err = run("export_schedules", "--workspace", workspace.name, "--prefix", "billing/", "--json")
    told = json.loads(out)
    assert (told["prefix"], [item["key"] for item in told["schedules"]]) == ("billing/", ["billing/a"])
    assert err == "1 schedules exported\n"
    whole, _ = run("export_schedules", "--workspace", workspace.name)
    assert "prefix" not in yaml.safe_load(whole)


@pytest.mark.django_db
def test_nothing_to_export_is_an_empty_list_that_can_be_applied(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "out.yaml"
    run("export_schedules", "--workspace", workspace.name, "--output", str(path))
    assert run("apply_schedules", str(path), "--workspace", workspace.name)[0] == "nothing is declared\n"


@pytest.mark.django_db
def test_a_job_whose_name_looks_like_an_id_is_written_by_its_id(workspace: Workspace, tmp_path: Path) -> None:
    job = make_job(workspace, "https://example.com/", name="0190b5a2-7c1e-7f00-8000-000000000000")
    make(workspace, "a", target=None, job_definition=job)
    out, _ = run("export_schedules", "--workspace", workspace.name)
    assert yaml.safe_load(out)["schedules"][0]["job_definition"] == str(job.id)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--workspace", "nobody"], "There is no workspace 'nobody'."),
        (["--workspace", "acme", "--output", "/dev/null/x"], "/dev/null/x cannot be written: Not a directory."),
        (["--workspace", "acme", "--prefix", ""], "--prefix is empty; leave it out"),
        (["--workspace", "acme", "--prefix", "a", "--all"], "argument --all: not allowed with argument --prefix"),
    ],
)
def test_what_cannot_be_done_is_one_clear_sentence(workspace: Workspace, arguments: list[str], sentence: str) -> None:
    with pytest.raises(CommandError) as caught:
        run("export_schedules", *arguments)
    assert sentence in str(caught.value)
    if "not allowed" not in sentence:  # the parser's own errors exit with 2 on the command line
        assert caught.value.returncode == 2


JSON_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
# Larger ones come out of the database as whole numbers.
NUMBERS = st.integers(-(10**40), 10**40) | st.floats(-(2.0**52), 2.0**52)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | JSON_TEXTS | st.from_regex(r"[-+0-9.eExob_:~#&*!|>%@`'\"{}\[\], <-]{1,6}"),
    lambda inner: st.lists(inner) | st.dictionaries(JSON_TEXTS | st.just("<<"), inner),
    max_leaves=20,
)


@given(JSON_VALUES)
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_every_json_value_is_read_back_as_it_was_from_yaml_and_from_json(value: Any) -> None:
    exported = Exported({"schedules": [{"payload": value}]})
    for text in (export.as_yaml(exported, workspace="w"), export.as_json(exported)):
        read = read_yaml(text)["schedules"][0]["payload"]
        assert read == value
        assert _types(read) == _types(value)


def _types(value: Any) -> Any:
    """Truth values, texts and numbers are told apart; whether a number is whole is not."""
    if isinstance(value, dict):
        return {name: _types(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_types(inner) for inner in value]
    return "number" if type(value) in (int, float) else type(value).__name__
