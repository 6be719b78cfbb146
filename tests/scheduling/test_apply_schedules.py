"""`apply_schedules`: a workspace holds what a file declares, all of it or nothing, and a second run changes nothing."""

import json
import time
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, transaction

from chronos_site.tenancy.models import Workspace
from execution.models import Execution
from scheduling import recurring, services
from scheduling.files import yaml_text
from scheduling.files.yaml_text import YamlFault, read_yaml
from scheduling.management.commands.apply_schedules import Command
from scheduling.models import Schedule
from scheduling.recurring import Recurring
from tests.making import make_job
from tests.processes import wait_until
from tests.threads import in_thread, lock_waiters

NIGHTLY = """\
prefix: billing/
schedules:
  - key: billing/nightly
    cron: "0 2 * * *"
    timezone: Europe/Berlin
    target:
      url: https://example.com/hooks/nightly
      headers: {X-Env: production, X-Route-Key: sesame, Authorization: Bearer secret://acme/hooks/one}
    payload: {full: true}
    delivery: {timeout_s: 20, retry: {max_attempts: 3}}
    misfire: {policy: fire_all, limit: 5}
    overlap: skip
    tags: [billing]
  - key: billing/often
    every: 15m
    target: {url: "https://example.com/hooks/often", method: GET}
"""


class Applied:
    """What a run printed, and how it ended."""

    def __init__(self, text: str | bytes, folder: Path, workspace: Workspace, *options: str) -> None:
        path = folder / "schedules.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        out, err = StringIO(), StringIO()
        self.code, self.error = 0, ""
        try:
            call_command("apply_schedules", str(path), "--workspace", workspace.name, *options, stdout=out, stderr=err)
        except CommandError as error:
            self.code, self.error = error.returncode, str(error)
        self.out, self.err = out.getvalue(), err.getvalue().replace(f"{path}:", "")
        self.faults = self.err.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def apply(tmp_path: Path, workspace: Workspace) -> Any:
    workspace.secret_namespaces = ["acme"]
    workspace.save()
    return lambda text, *options: Applied(text, tmp_path, workspace, *options)


def one(key: str) -> Schedule:
    return Schedule.objects.get(external_key=key)


def declare(*lines: str) -> str:
    """A file with one schedule, whose lines come after its key in line 2."""
    return "\n".join(["schedules:", "  - key: a", *(f"    {line}" for line in lines)])


CALL = "target: {url: 'https://example.com/'}"


@pytest.mark.django_db
def test_what_a_file_declares_is_made_with_its_first_occurrences(apply: Any) -> None:
    done = apply(NIGHTLY)
    assert (done.code, done.out.splitlines()[-1]) == (0, "2 made")
    nightly, often = one("billing/nightly"), one("billing/often")
    assert (nightly.cron, nightly.timezone, nightly.kind) == ("0 2 * * *", "Europe/Berlin", "cron")
    assert nightly.target == {
        "url": "https://example.com/hooks/nightly",
        "method": "POST",
        "headers": {
            "X-Env": "production",
            "X-Route-Key": "sesame",
            "Authorization": "Bearer secret://acme/hooks/one",
        },
    }
    assert (nightly.payload, nightly.overlap, nightly.tags) == ({"full": True}, "skip", ["billing"])
    assert nightly.delivery == {"timeout_s": 20, "retry": {"max_attempts": 3}}
    assert (nightly.misfire, nightly.misfire_limit, nightly.misfire_grace_s) == ("fire_all", 5, 60)
    assert (often.every_s, often.kind) == (900, "interval")
    assert apply(declare('cron: "* * * * *"', CALL)).code == 0
    assert Execution.objects.filter(schedule_id=one("a").id, state="PENDING").exists()


@pytest.mark.django_db
def test_a_second_run_changes_nothing(apply: Any) -> None:
    apply(NIGHTLY)
    before = list(Schedule.objects.order_by("id").values())
    done = apply(NIGHTLY, "--prune")
    assert (done.code, done.out) == (0, "2 unchanged\n")
    assert list(Schedule.objects.order_by("id").values()) == before


@pytest.mark.django_db
def test_a_change_keeps_the_schedule_and_what_the_file_no_longer_says_falls_back(apply: Any) -> None:
    apply(NIGHTLY)
    was = one("billing/nightly")
    done = apply(NIGHTLY.replace("0 2 * * *", "0 3 * * *").replace("    overlap: skip\n", ""))
    now = one("billing/nightly")
    assert (now.id, now.cron, now.overlap, now.version) == (was.id, "0 3 * * *", "allow", was.version + 1)
    assert done.out.splitlines()[-1] == "1 changed, 1 unchanged"


@pytest.mark.django_db
def test_a_dry_run_shows_the_difference_field_by_field_without_secrets_and_changes_nothing(apply: Any) -> None:
    apply(NIGHTLY)
    before = list(Schedule.objects.order_by("id").values())
    changed = (
        NIGHTLY.replace("0 2 * * *", "0 3 * * *")
        .replace("sesame", "open")
        .replace("hooks/one", "hooks/two")
        .replace("production", "test")
        .replace("key: billing/often", "key: billing/rarely")
    )
    done = apply(changed, "--dry-run", "--prune")
    assert done.out.splitlines() == [
        "~ billing/nightly",
        '    cron: "0 2 * * *" → "0 3 * * *"',
        '    target.headers.X-Env: "production" → "test"',
        "    target.headers.X-Route-Key: (hidden) → (hidden)",
        '    target.headers.Authorization: "Bearer secret://acme/hooks/one" → "Bearer secret://acme/hooks/two"',
        "+ billing/rarely  every 15 minutes: GET https://example.com/hooks/often",
        "- billing/often",
        "dry run: 1 made, 1 changed, 1 cancelled",
    ]
    assert "sesame" not in done.out
    assert "open" not in done.out
    assert list(Schedule.objects.order_by("id").values()) == before


@pytest.mark.django_db
def test_json_tells_the_same_to_programs_and_nothing_else_is_on_stdout(apply: Any) -> None:
    apply(NIGHTLY)
    told = apply(NIGHTLY.replace("0 2 * * *", "0 3 * * *"), "--json").json
    assert (told["applied"], told["dry_run"], told["errors"]) == (True, False, [])
    assert told["counts"] == {"made": 0, "changed": 1, "unchanged": 1, "cancelled": 0, "ended": 0}
    assert told["schedules"][0] == {
        "key": "billing/nightly",
        "outcome": "changed",
        "line": 3,
        "schedule_id": str(one("billing/nightly").id),
        "changes": [{"field": "cron", "old": '"0 2 * * *"', "new": '"0 3 * * *"'}],
    }
    wrong = apply(declare("every: 15m"), "--json")
    assert (wrong.code, wrong.json["applied"]) == (1, False)
    assert wrong.json["errors"][0]["line"] == 2


@pytest.mark.django_db
def test_prune_cancels_what_begins_with_the_prefix_and_nothing_else(
    apply: Any, workspace: Workspace, other_workspace: Workspace
) -> None:
    def make(key: str | None, where: Workspace = workspace) -> Schedule:
        target = {"url": "https://example.com/", "method": "POST", "headers": {}}
        return recurring.create_recurring(
            workspace=where, new=Recurring(cron="0 0 1 1 *", target=target, external_key=key)
        )

    gone = make("billing/old")
    kept = [make("billing"), make("billing_old"), make("Billing/x"), make("b%/x"), make(None)]
    foreign = make("billing/old", other_workspace)
    assert apply(NIGHTLY).code == 0
    gone.refresh_from_db()
    assert gone.state == "ACTIVE"
    done = apply(NIGHTLY, "--prune")
    gone.refresh_from_db()
    assert (done.code, gone.state) == (0, "CANCELLED")
    assert set(Schedule.objects.filter(id__in=[s.id for s in [*kept, foreign]]).values_list("state", flat=True)) == {
        "ACTIVE"
    }
    assert apply(NIGHTLY, "--prune").out == "2 unchanged\n"


@pytest.mark.django_db
def test_a_prefix_with_signs_of_sql_prunes_by_its_letters(apply: Any, workspace: Workspace) -> None:
    apply(declare('cron: "0 0 1 1 *"', CALL).replace("key: a", "key: axb/1"))
    assert apply("prefix: a_b/\nschedules: []", "--prune").out == "nothing is declared\n"
    assert apply("prefix: a%\nschedules: []", "--prune").out == "nothing is declared\n"
    assert one("axb/1").state == "ACTIVE"


@pytest.mark.django_db
def test_prune_without_a_prefix_is_refused(apply: Any) -> None:
    done = apply("schedules: []", "--prune")
    assert (done.code, done.error) == (
        2,
        "--prune needs a prefix: in the file, to know which schedules are its own.",
    )


@pytest.mark.django_db
def test_paused_is_said_both_ways_and_left_alone_where_the_file_is_silent(apply: Any, workspace: Workspace) -> None:
    text = declare('cron: "0 9 * * *"', CALL)
    assert apply(f"{text}\n    paused: true").code == 0
    assert (one("a").state, Execution.objects.count()) == ("PAUSED", 0)
    assert apply(f"{text}\n    paused: true").out == "1 unchanged\n"
    assert apply(text).out == "1 unchanged\n"
    assert apply(f"{text}\n    paused: false").out == "~ a\n    paused: true → false\n1 changed\n"
    assert one("a").state == "ACTIVE"
    recurring.pause_schedule(workspace=workspace, schedule_id=one("a").id)
    assert apply(text.replace("0 9", "0 10")).code == 0
    assert (one("a").state, one("a").cron) == ("PAUSED", "0 10 * * *")


@pytest.mark.django_db
def test_a_cancelled_schedule_is_made_again_and_a_completed_one_only_where_the_file_asks_for_another(
    apply: Any, workspace: Workspace
) -> None:
    text = declare('cron: "0 9 * * *"', CALL)
    apply(text)
    first = one("a")
    recurring.cancel_recurring(workspace=workspace, schedule_id=first.id)
    assert apply(text).out.endswith("1 made\n")
    assert (one("a").id != first.id, one("a").state) == (True, "ACTIVE")
    Schedule.objects.filter(external_key="a").update(state="COMPLETED", next_run_at=None)
    assert apply(text).out == "= a  COMPLETED, and stays so\n1 ended\n"
    assert apply(text.replace("0 9", "0 10")).out.endswith("1 made\n")
    assert sorted(Schedule.objects.values_list("external_key", "state", "cron"), key=str) == [
        ("a", "ACTIVE", "0 10 * * *"),
        (None, "CANCELLED", "0 9 * * *"),
        (None, "COMPLETED", "0 9 * * *"),
    ]


@pytest.mark.django_db
def test_an_interval_keeps_its_anchor_unless_the_file_names_one(apply: Any) -> None:
    apply(declare("every: 15m", CALL))
    anchor = one("a").anchor
    assert apply(declare("every: 15m", CALL)).out == "1 unchanged\n"
    apply(declare("every: 30m", CALL))
    assert (one("a").every_s, one("a").anchor) == (1800, anchor)
    apply(declare("every: 30m", 'anchor: "2030-01-01T00:00:00Z"', CALL))
    assert one("a").anchor == datetime(2030, 1, 1, tzinfo=UTC)
    apply(declare("every: 30m", "starts_at: 2031-01-01T00:00:00+01:00", CALL))
    assert one("a").anchor == datetime(2030, 12, 31, 23, tzinfo=UTC)


@pytest.mark.django_db
def test_a_schedule_changes_between_cron_and_interval_and_between_target_and_job(
    apply: Any, workspace: Workspace
) -> None:
    job = make_job(workspace, "https://example.com/job", name="send invoice")
    apply(declare("every: 15m", CALL))
    first = one("a").id
    assert apply(declare('cron: "0 9 * * *"', "job_definition: send invoice")).code == 0
    row = one("a")
    assert (row.id, row.kind, row.every_s, row.anchor, row.job_definition, row.target) == (
        first, "cron", None, None, job, None
    )  # fmt: skip
    assert apply(declare('cron: "0 9 * * *"', f"job_definition: {job.id}")).out == "1 unchanged\n"
    assert apply(declare("every: 15m", CALL)).code == 0
    assert (one("a").kind, one("a").cron, one("a").job_definition) == ("interval", "", None)
    assert apply(declare("every: 15m", CALL)).out == "1 unchanged\n"


@pytest.mark.django_db
def test_a_flag_that_becomes_a_number_is_a_change(apply: Any) -> None:
    apply(declare("every: 15m", CALL, "payload: {n: true, m: [1]}"))
    assert apply(declare("every: 15m", CALL, "payload: {n: 1, m: [1]}")).out.endswith("1 changed\n")
    assert json.dumps(one("a").payload, sort_keys=True) == '{"m": [1], "n": 1}'
    assert apply(declare("every: 15m", CALL, "payload: {n: 1.0, m: [1.0]}")).out == "1 unchanged\n"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["every: 15m"], "2: a: job_definition: Give job_definition or target: one of them is needed."),
        ([CALL], "2: a: cron: Give cron or every: one of them is needed."),
        (['cron: "* * * * *"', "every: 15m", CALL], "3: a: cron: Give cron or every: not both."),
        (["every: fifteen", CALL], "3: a: every: The interval 'fifteen' cannot be read; write it like 90s, 15m, "
                                   "1h30m, 2d or 1w."),
        (["every: 15m", "overlap: no", CALL], '4: a: overlap: "no" is not a valid choice.'),
        (["every: 15m", "max_runs: 1.5", CALL], "4: a: max_runs: Give a whole number."),
        (["every: 15m", "jitter_s: '5'", CALL], "4: a: jitter_s: Give a number."),
        (["every: 15m", "paused: yes", CALL], "4: a: paused: Give true or false."),
        (["every: 15m", "run_at: 2030-01-01T00:00:00Z", CALL], "4: a: run_at: There is no field of this name here."),
        (['cron: "61 * * * *"', CALL], "3: a: cron: The minute '61' cannot be read: it runs from 0 to 59."),
        (['cron: "0 0 31 2 *"', CALL], "3: a: cron: The expression '0 0 31 2 *' names no date that exists."),
        (['cron: "0 9 * * *"', "timezone: Mars/Base", CALL], "4: a: timezone: The time zone 'Mars/Base' is unknown; "
                                                             "write an IANA name such as Europe/Berlin or UTC."),
        (['cron: "0 9 * * *"', "ends_at: 2020-01-01T00:00:00Z", CALL],
         "4: a: ends_at: This schedule would never fire."),
        (["every: 15m", "job_definition: nobody"],
         "4: a: job_definition: There is no job definition 'nobody' in this workspace."),
        (["every: 15m", "target: {url: 'https://10.0.0.1/'}"],
         "4: a: target.url: This URL cannot be called: 10.0.0.1 is not a public address (private)."),
        (["every: 15m", "target:", "  url: https://example.com/", "  headers:", "    Host: x"],
         "7: a: target.headers.Host: This header is set by Chronos or by the connection. Leave it out."),
        (["every: 15m", CALL, "delivery: {headers: {Authorization: 'Bearer sesame'}}"],
         "5: a: delivery.headers.Authorization: This header carries a secret, which is not taken in clear. Keep it in a"
         " secret store and name it: secret://namespace/name/key, or Bearer secret://namespace/name/key."),
        (["every: 15m", "target:", "  url: https://example.com/", "  auth: {type: bearer, token: secret://globex/a/b}"],
         "6: a: target.auth.token: This workspace may not use secrets of the namespace 'globex', only of acme. An"
         " operator can allow it in the admin."),
        (["every: 15m", CALL, "delivery: {headers: {Authorization: '(secret: left as it is)'}}"],
         "5: a: delivery.headers.Authorization: There is no stored value to leave as it is. Write the value."),
        (["every: 15m", CALL, "every: 30m"], "5: 'every' is given twice; it stands in line 3 already."),
        (["cron: * * * * *", CALL],
         '3: A cron expression needs quotes, for YAML reads * and @ otherwise: cron: "*/5 * * * *".'),
        (["cron: @daily", CALL],
         '3: A cron expression needs quotes, for YAML reads * and @ otherwise: cron: "*/5 * * * *".'),
        (["every: 15m", "\ttags: []"], "4: The line is indented with a tab; YAML takes spaces only."),
        (["every: !!python/object:os.system {}"],
         "3: The tag tag:yaml.org,2002:python/object:os.system is not taken; leave it out."),
    ],
)  # fmt: skip
def test_a_fault_is_one_sentence_with_its_line_and_nothing_is_changed(apply: Any, lines: list[str], fault: str) -> None:
    done = apply(declare(*lines))
    assert (done.code, done.faults) == (1, [fault])
    assert not Schedule.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "1: The file is an object with the member schedules, a list."),
        ("- a", "1: The file is an object with the member schedules, a list."),
        ("schedules: 3", "1: schedules: Give a list of schedules; [] where there is none."),
        ("schedules: [3]", "1: Give an object, not a int."),
        ("schedules: []\nschedulse: []", "2: There is no member 'schedulse' here, only prefix and schedules."),
        ("prefix: ''\nschedules: []", "1: prefix: Give a text that is not empty, like billing/."),
        (b"schedules: []\n# \xff\n", "2: The file is not UTF-8."),
        (b"\x7fELF\x02\x01\x01\x00", "1: The file holds a character that YAML does not take."),
        ("a: 1\n---\nb: 2", "2: The file holds a second document; write one."),
        ("schedules: " + "[" * 100_000, "1: This is no YAML: exceeded maximum nesting depth."),
        ("- " * 1000 + "x", "1: This is nested deeper than 80 levels."),
        ("prefix: b/\n" + declare("every: 15m", CALL), "3: a: key: It must begin with the file's prefix, 'b/'."),
        (declare("every: 15m", CALL) + "\n  - {key: a, every: 1h, target: {url: 'https://example.com'}}",
         "5: a: key: This key stands in line 2 already."),
        (declare("every: 15m", CALL).replace("key: a", "key: id:0190b5a2-7c1e-7f00-8000-000000000000"),
         "2: id:0190b5a2-7c1e-7f00-8000-000000000000: key: There is no schedule of this id here. "
         "Give it a key of its own."),
    ],
)  # fmt: skip
def test_a_file_of_another_shape_is_refused(apply: Any, text: str | bytes, fault: str) -> None:
    done = apply(text)
    assert (done.code, done.faults) == (1, [fault])


@pytest.mark.django_db
def test_everything_that_is_wrong_is_told_at_once_and_the_good_rest_is_not_applied(apply: Any) -> None:
    text = NIGHTLY + (
        "  - {key: billing/a, every: 0, target: {url: 'https://example.com'}}\n"
        "  - {key: billing/b, every: 15m, job_definition: nobody}\n"
        "  - {key: billing/c, every: 15m, target: {url: 'ftp://example.com'}, tags: [a, a]}\n"
        "prefix: again/\n"
    )
    done = apply(text)
    assert [fault.split(":")[0] for fault in done.faults] == ["17", "18", "19", "19", "20"]
    assert done.error.endswith(" has 5 faults; nothing was changed.")
    assert not Schedule.objects.exists()


@pytest.mark.django_db
def test_the_key_of_a_once_schedule_is_not_taken_over(apply: Any, workspace: Workspace) -> None:
    new = services.NewSchedule(delay_s=900, target={"url": "https://example.com/"}, external_key="a")
    services.create_schedules(workspace=workspace, new=[new], traceparent="")
    assert apply(declare("every: 15m", CALL)).faults == [
        "2: a: key: This is the key of a schedule that fires once. Choose another."
    ]
    services.cancel_schedule(workspace=workspace, schedule_id=one("a").id)
    assert apply(declare("every: 15m", CALL)).out.endswith("1 made\n")


@pytest.mark.django_db
def test_an_unknown_workspace_or_file_is_one_clear_sentence(tmp_path: Path, workspace: Workspace) -> None:
    path = tmp_path / "x.yaml"
    with pytest.raises(CommandError, match=r"^There is no workspace 'nobody'\. Check the name") as caught:
        call_command("apply_schedules", str(path), "--workspace", "nobody")
    assert caught.value.returncode == 2
    with pytest.raises(CommandError, match=r"x\.yaml cannot be read: No such file or directory\.$") as caught:
        call_command("apply_schedules", str(path), "--workspace", workspace.name)
    assert caught.value.returncode == 2


@pytest.mark.django_db
def test_a_quota_that_is_full_changes_nothing(apply: Any, workspace: Workspace) -> None:
    Workspace.objects.filter(id=workspace.id).update(quota_schedules=1)
    done = apply(NIGHTLY)
    assert (done.code, "1 recurring schedules" in done.error) == (1, True)
    assert not Schedule.objects.exists()


@pytest.mark.django_db
def test_another_workspaces_schedules_and_jobs_are_not_seen(
    apply: Any, workspace: Workspace, other_workspace: Workspace
) -> None:
    job = make_job(other_workspace, "https://example.com/job", name="theirs")
    for named in ("theirs", str(job.id)):
        assert apply(declare("every: 15m", f"job_definition: {named}")).code == 1
    target = {"url": "https://example.com/", "method": "POST", "headers": {"Authorization": "x"}}
    theirs = recurring.create_recurring(
        workspace=other_workspace, new=Recurring(every_s=900, target=target, external_key="a")
    )
    kept = "target: {url: 'https://example.com/', headers: {Authorization: '(secret: left as it is)'}}"
    assert apply(declare("every: 15m", kept)).code == 1
    assert apply(declare("every: 15m", CALL)).out.endswith("1 made\n")
    theirs.refresh_from_db()
    assert (theirs.version, theirs.state) == (1, "ACTIVE")


# --- two at once ----------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_two_applies_at_once_make_each_schedule_once(tmp_path: Path, workspace: Workspace) -> None:
    text = "schedules:\n" + "".join(
        f"  - {{key: k{n}, cron: '* * * * *', target: {{url: 'https://example.com/{n}'}}}}\n" for n in range(200)
    )
    results: list[Applied] = []

    def run(name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        results.append(Applied(text, folder, workspace))

    for thread in [in_thread(lambda name=name: run(name)) for name in ("one", "two")]:  # type: ignore[misc]
        thread.join()
    assert sorted(done.out.splitlines()[-1] for done in results) == ["200 made", "200 unchanged"]
    assert Schedule.objects.filter(workspace=workspace).count() == 200
    due = Execution.objects.filter(workspace=workspace)
    assert due.count() == due.values("schedule_id", "scheduled_for").distinct().count()


@pytest.mark.django_db(transaction=True)
def test_a_deadlock_with_somebody_elses_work_is_tried_again(apply: Any, workspace: Workspace) -> None:
    text = NIGHTLY.replace("billing/nightly", "billing/a")
    apply(text)
    first, second = Schedule.objects.order_by("id").values_list("id", flat=True)
    done: list[Applied] = []
    changed = text.replace("0 2 * * *", "0 3 * * *").replace("15m", "30m")
    with transaction.atomic():
        Schedule.objects.select_for_update().get(id=second)
        thread = in_thread(lambda: done.append(apply(changed)))
        wait_until(lambda: lock_waiters() == 1)
        Schedule.objects.select_for_update().get(id=first)  # Postgres ends the one that waited first
    thread.join()
    assert done[0].out.splitlines()[-1] == "2 changed"
    assert "trying again" in done[0].err
    assert set(Schedule.objects.values_list("version", flat=True)) == {2}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("text", "arguments", "code"),
    [("schedules: []", [], 0), ("schedules: 3", [], 1), ("schedules: []", ["--workspace", "nobody"], 2)],
)
def test_the_process_ends_with_the_code_that_the_help_names(
    tmp_path: Path, workspace: Workspace, text: str, arguments: list[str], code: int
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    argv = ["manage.py", "apply_schedules", str(path), "--workspace", workspace.name, *arguments]
    ended = 0
    try:
        Command().run_from_argv(argv)
    except SystemExit as error:
        ended = int(error.code or 0)
    assert ended == code


@pytest.mark.django_db(transaction=True)
def test_a_failure_in_the_middle_leaves_everything_as_it_was(apply: Any, workspace: Workspace) -> None:
    apply(NIGHTLY)
    before = list(Schedule.objects.order_by("id").values())
    rows = Execution.objects.count()
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE scheduling_schedule ADD CONSTRAINT no_such_key CHECK (external_key <> 'billing/new') NOT VALID"
        )
    try:
        text = NIGHTLY.replace("0 2 * * *", "* * * * *") + (
            "  - {key: billing/new, every: 15m, target: {url: 'https://example.com'}}\n"
        )
        with pytest.raises(Exception, match="no_such_key"):
            apply(text)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE scheduling_schedule DROP CONSTRAINT no_such_key")
    assert list(Schedule.objects.order_by("id").values()) == before
    assert Execution.objects.count() == rows


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(400)  # on a machine that is busy with other things
def test_ten_thousand_schedules_are_made_and_compared_in_seconds(
    apply: Any, workspace: Workspace, django_assert_max_num_queries: Any
) -> None:
    text = "schedules:\n" + "".join(
        f"  - key: k{n}\n    cron: '{n % 60} {n % 24} * * *'\n    target: {{url: 'https://example.com/{n}'}}\n"
        f"    payload: {{n: {n}}}\n"
        for n in range(10_000)
    )
    begun = time.process_time()  # of this process alone: the machine may be busy with other things
    with django_assert_max_num_queries(60):
        done = apply(text)
    assert done.out.splitlines()[-1] == "10000 made"
    with django_assert_max_num_queries(30):
        assert apply(text).out == "10000 unchanged\n"
    assert time.process_time() - begun < 30


# --- YAML -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"), ("on", "on"), ("true", True), ("True", "True"), ("null", None), ("~", None), ("", None),
        ("12", 12), ("-1", -1), ("012", "012"), ("0x1f", "0x1f"), ("1_000", "1_000"), ("12:30", "12:30"),
        ("1.5", 1.5), ("1e3", 1000.0), ("1e999", "1e999"), (".5", ".5"), (".inf", ".inf"), (".nan", ".nan"),
        ("2030-01-31", "2030-01-31"), ("'true'", "true"), ('"12"', "12"), ("!!str 12", "12"), ("15m", "15m"),
    ],
)  # fmt: skip
def test_plain_words_mean_what_they_mean_in_json_and_are_texts_otherwise(text: str, value: Any) -> None:
    read = read_yaml(f"a: {text}")["a"]
    assert (read, type(read)) == (value, type(value))


def test_merge_keys_and_aliases_are_taken_and_what_is_written_wins() -> None:
    text = "base: &b {x: 1, y: 1}\nlist: [&o {y: 2, z: 2}]\nd:\n  y: 3\n  <<: [*b, *o]\ne: *b\nf: {'<<': 4}\n"
    read = read_yaml(text)
    assert (read["d"], read["e"], read["f"]) == ({"x": 1, "y": 3, "z": 2}, {"x": 1, "y": 1}, {"<<": 4})


def test_aliases_that_unfold_to_millions_are_refused_before_anybody_walks_over_them() -> None:
    layers = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    layers += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20)]
    with pytest.raises(YamlFault) as caught:
        read_yaml("\n".join(layers))
    assert caught.value.text == "The aliases unfold to more than 2,000,000 values."


def test_the_parser_of_the_wheel_is_the_fast_one() -> None:
    assert yaml_text._LOADER.__name__ == "CSafeLoader"
