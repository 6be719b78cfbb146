"""`import_crontab`: the curl calls of a crontab become schedules, faithfully or not at all, and once."""

import json
import shutil
import subprocess
import sys
import time
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from hypothesis import example, given
from hypothesis import strategies as st

from chronos_site.tenancy.models import Workspace
from execution.models import Execution
from scheduling import recurring
from scheduling.files import crontab
from scheduling.files.curl import read_curl
from scheduling.files.shell import NotPlain, words_of
from scheduling.models import Schedule
from tests.clients import ProgrammableReceiver
from tests.making import make_job

URL = "https://example.com/hook"


class Imported:
    """What a run printed, and how it ended."""

    def __init__(self, text: str | bytes, folder: Path, workspace: Workspace, *options: str) -> None:
        path = folder / "jobs.cron"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        out, err = StringIO(), StringIO()
        self.code, self.error = 0, ""
        try:
            call_command("import_crontab", str(path), "--workspace", workspace.name, *options, stdout=out, stderr=err)
        except CommandError as error:
            self.code, self.error = error.returncode, str(error)
        self.out, self.err = (written.getvalue().replace(f"{path}:", "") for written in (out, err))
        self.lines = self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def load(tmp_path: Path, workspace: Workspace) -> Any:
    return lambda text, *options: Imported(text, tmp_path, workspace, *options)


def schedules() -> list[Schedule]:
    """By their times."""
    found = Schedule.objects.filter(external_key__isnull=False)
    return sorted(found, key=lambda row: (row.cron, str(row.external_key)))


# --- the file -------------------------------------------------------------------------------------------------

WHOLE = f"""\
\ufeff# nightly things\r
MAILTO=""\r
CRON_TZ=Europe/Berlin\r
\r
# name: report\r
# chronos: {{"tags": ["nightly"], "overlap": "skip"}}\r
0 9 * * mon-fri curl -fsS -m 10 --retry 3 '{URL}?a=1&b=2' > /dev/null 2>&1\r
\t@daily   /usr/bin/curl -X PUT --json '{{"rate": "50\\%"}}' {URL}\r
# chronos: {{"target": {{"url": "{URL}", "method": "DELETE"}}}}\r
*/5 * * * * /opt/clean-up --all | mail root\r
"""


@pytest.mark.django_db
def test_a_whole_crontab_becomes_schedules(load: Any) -> None:
    done = load(WHOLE)
    assert (done.code, done.lines[-1]) == (0, "3 made")
    cleaner, report, daily = schedules()
    assert (report.external_key, report.cron, report.timezone) == (
        "crontab:jobs.cron:report",
        "0 9 * * mon-fri",
        "Europe/Berlin",
    )
    assert report.target == {"url": f"{URL}?a=1&b=2", "method": "GET", "headers": {}}
    assert (report.delivery, report.payload) == ({"timeout_s": 10, "retry": {"max_attempts": 4}}, None)
    assert (report.tags, report.overlap) == (["nightly"], "skip")
    assert (daily.cron, daily.payload, daily.delivery) == ("@daily", {"rate": "50%"}, {"retry": {"max_attempts": 1}})
    assert daily.target == {
        "url": URL,
        "method": "PUT",
        "headers": {"Content-Type": "application/json", "Accept": "application/json"},
    }
    assert (cleaner.cron, cleaner.target) == ("*/5 * * * *", {"url": URL, "method": "DELETE", "headers": {}})
    assert (cleaner.delivery, {s.state for s in schedules()}) == ({}, {"ACTIVE"})
    assert done.lines[0] == (
        "7: made: crontab:jobs.cron:report  0 9 * * mon-fri, from Monday to Friday at 09:00 (Europe/Berlin): "
        f"GET {URL}?…"
    )


@pytest.mark.django_db
def test_importing_the_same_file_again_changes_nothing(load: Any) -> None:
    load(WHOLE)
    before = list(Schedule.objects.order_by("id").values())
    done = load(WHOLE)
    assert (done.code, done.lines[-1]) == (0, "3 unchanged")
    assert list(Schedule.objects.order_by("id").values()) == before


@pytest.mark.django_db
def test_times_are_made_into_occurrences_at_once(load: Any) -> None:
    load(f"* * * * * curl {URL}")
    assert Execution.objects.filter(schedule_id=schedules()[0].id, state="PENDING").exists()


@pytest.mark.django_db
def test_a_named_line_keeps_its_schedule_when_it_changes_and_an_unnamed_one_is_told_to_be_gone(load: Any) -> None:
    load(f"# name: a\n0 1 * * * curl {URL}\n0 2 * * * curl {URL}\n")
    named, unnamed = schedules()
    done = load(f"# name: a\n0 3 * * * curl {URL}\n0 4 * * * curl {URL}\n")
    named.refresh_from_db()
    assert (named.cron, done.lines[-1], len(schedules())) == ("0 3 * * *", "1 made, 1 changed", 3)
    assert (
        f"note: 1 schedules of earlier imports are not in the file and go on firing; cancel them if they are not "
        f"wanted: {unnamed.external_key}"
    ) in done.err


@pytest.mark.django_db
def test_moving_a_line_or_its_spaces_makes_no_other_schedule(load: Any) -> None:
    load(f"0 1 * * * curl {URL}\n0 2 * * * curl {URL}\n")
    done = load(f"\n# hello\n0 2 * * *   curl {URL}  \n\n0\t1 * * * curl {URL}\r\n")
    assert done.lines[-1] == "2 unchanged"


@pytest.mark.django_db
def test_two_equal_lines_are_two_schedules_as_cron_runs_both(load: Any) -> None:
    done = load(f"0 1 * * * curl {URL}\n0 1 * * * curl {URL}\n")
    first, second = schedules()
    assert (done.lines[-1], second.external_key) == ("2 made", f"{first.external_key}-2")


@pytest.mark.django_db
def test_a_schedule_that_was_cancelled_here_is_not_brought_back_by_an_import(load: Any, workspace: Workspace) -> None:
    load(f"0 1 * * * curl {URL}")
    recurring.cancel_recurring(workspace=workspace, schedule_id=schedules()[0].id)
    done = load(f"0 1 * * * curl {URL}")
    assert (done.code, done.lines[-1], schedules()[0].state) == (0, "1 ended", "CANCELLED")
    assert "1: left: crontab:jobs.cron:" in done.lines[0]


@pytest.mark.django_db
def test_a_dry_run_says_the_same_and_makes_nothing(load: Any) -> None:
    done = load(WHOLE, "--dry-run")
    assert (done.code, done.lines[-1]) == (0, "dry run: 3 made")
    assert done.lines[0].startswith("7: would be made: ")
    assert not Schedule.objects.exists()


BROKEN = f"0 1 * * * curl {URL}\n\n0 2 * * * wget {URL}\n0 3 * * * curl {URL} | sh\nnonsense\n@reboot curl {URL}\n"


@pytest.mark.django_db
def test_with_a_line_that_cannot_be_read_nothing_is_imported(load: Any) -> None:
    done = load(BROKEN)
    assert done.code == 1
    assert done.error.startswith("4 lines of ")
    assert done.lines[1:] == [
        "3: It runs 'wget': only calls of curl are read. A `# chronos:` comment can name a target. (cannot be read)",
        "4: Its output goes through a pipe into another program; that is not carried over. (cannot be read)",
        "5: This is neither a variable nor five time fields and a command. (cannot be read)",
        "6: @reboot is no time: it fires when a machine starts. (cannot be read)",
        "nothing was imported: 1 made, 4 cannot be read",
    ]
    assert not Schedule.objects.exists()


@pytest.mark.django_db
def test_skip_unreadable_imports_the_others_and_ends_well(load: Any) -> None:
    done = load(BROKEN, "--skip-unreadable")
    assert (done.code, done.lines[-1], len(schedules())) == (0, "1 made, 4 cannot be read", 1)
    assert load(BROKEN, "--skip-unreadable", "--dry-run").code == 0


@pytest.mark.django_db
def test_what_only_the_workspace_can_tell_makes_a_line_unreadable_as_well(load: Any, workspace: Workspace) -> None:
    text = f'# chronos: {{"job_definition": "nightly"}}\n0 1 * * * x\n0 2 * * * curl {URL}\n'
    done = load(text)
    assert (done.code, Schedule.objects.exists()) == (1, False)
    assert done.lines[0] == (
        "2: job_definition: There is no job definition 'nightly' in this workspace. (cannot be read)"
    )
    assert load(text, "--skip-unreadable").lines[-1] == "1 made, 1 cannot be read"
    job = make_job(workspace, URL, name="nightly")
    assert load(text).lines[-1] == "1 made, 1 unchanged"
    assert schedules()[0].job_definition == job


@pytest.mark.django_db
def test_json_is_the_whole_report_for_programs(load: Any) -> None:
    told = load(f"TZ=Europe/Paris\n0 1 * * * curl {URL}\n0 2 * * * wget x\n", "--json", "--skip-unreadable").json
    assert told["counts"] == {"made": 1, "changed": 0, "unchanged": 0, "cancelled": 0, "ended": 0, "unreadable": 1}
    assert [(line["line"], line["outcome"]) for line in told["lines"]] == [(2, "made"), (3, "unreadable")]
    assert told["lines"][0]["schedule_id"] == str(schedules()[0].id)
    assert (told["applied"], told["read_in_utc"], told["without_max_time"]) == (True, 0, 1)
    assert told["notes"][0]["line"] == 1
    wrong = load("0 2 * * * wget x\n", "--json")
    assert (wrong.code, wrong.json["applied"], wrong.json["counts"]["unreadable"]) == (1, False, 1)


@pytest.mark.django_db
def test_headers_that_look_like_secrets_are_told_and_not_printed(load: Any) -> None:
    done = load(f"0 1 * * * curl -H 'X-Route-Key: sesame' {URL}")
    assert schedules()[0].target is not None
    assert "looks like a secret" in done.out
    assert "sesame" not in done.out + done.err


@pytest.mark.django_db
def test_a_header_that_carries_a_secret_in_clear_is_refused_and_a_reference_is_taken(
    load: Any, workspace: Workspace
) -> None:
    done = load(f"0 1 * * * curl -H 'Authorization: Bearer sesame' {URL}")
    assert (done.code, list(schedules())) == (1, [])
    assert "headers.Authorization: This header carries a secret, which is not taken in clear." in done.out + done.err
    assert "sesame" not in done.out + done.err
    workspace.secret_namespaces = ["acme"]
    workspace.save()
    done = load(f"0 1 * * * curl -H 'Authorization: Bearer secret://acme/hooks/token' {URL}")
    target = schedules()[0].target
    assert target is not None
    assert target["headers"] == {"Authorization": "Bearer secret://acme/hooks/token"}
    assert "looks like a secret" not in done.out


@pytest.mark.django_db
def test_a_crontab_comes_through_a_pipe_as_well(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(f"# name: a\n0 1 * * * curl {URL}".encode())))
    call_command("import_crontab", "-", "--workspace", workspace.name, stdout=StringIO(), stderr=StringIO())
    assert [row.external_key for row in schedules()] == ["crontab:stdin:a"]


# --- zones ----------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("above", "options", "zone", "told"),
    [
        ("", [], "UTC", "1 lines are read in UTC"),
        ("", ["--timezone", "Asia/Tokyo"], "Asia/Tokyo", ""),
        ("CRON_TZ=Europe/Berlin", [], "Europe/Berlin", ""),
        ("CRON_TZ=Europe/Berlin", ["--timezone", "Asia/Tokyo"], "Europe/Berlin", ""),
        (" CRON_TZ = ':Europe/Berlin' ", [], "Europe/Berlin", ""),
        ("TZ=Europe/Berlin", [], "Europe/Berlin", ""),
        ("TZ=Europe/Berlin", ["--timezone", "Asia/Tokyo"], "Asia/Tokyo", ""),
        ("TZ=Europe/Berlin\nCRON_TZ=Europe/Paris", [], "Europe/Paris", ""),
        ("CRON_TZ=Europe/Berlin\nCRON_TZ=", [], "UTC", "1 lines are read in UTC"),
        (f"CRON_TZ=Europe/Berlin\n0 2 * * * curl {URL}\nCRON_TZ=Europe/Paris", [], "Europe/Paris", ""),
    ],
)
def test_the_zone_is_that_of_the_lines_above_then_of_the_option_then_utc(
    load: Any, above: str, options: list[str], zone: str, told: str
) -> None:
    done = load(f"{above}\n0 1 * * * curl {URL}\n", *options)
    assert (done.code, Schedule.objects.get(cron="0 1 * * *").timezone) == (0, zone)
    assert ("read in UTC" in done.err) == bool(told)
    assert told in done.err


@pytest.mark.django_db
def test_after_a_zone_that_does_not_exist_no_line_is_read_until_the_next(load: Any) -> None:
    done = load(f"CRON_TZ=CET-1CEST\n0 1 * * * curl {URL}\nCRON_TZ=UTC\n0 2 * * * curl {URL}\n", "--skip-unreadable")
    assert done.lines[:2] == [
        "1: The time zone 'CET-1CEST' is unknown; write an IANA name such as Europe/Berlin or UTC. (cannot be read)",
        "2: Its time zone is not known: CRON_TZ in line 1 cannot be read. (cannot be read)",
    ]
    assert [row.cron for row in schedules()] == ["0 2 * * *"]


@pytest.mark.django_db
def test_another_zone_changes_the_schedules_and_makes_no_others(load: Any) -> None:
    load(f"0 1 * * * curl {URL}")
    done = load(f"0 1 * * * curl {URL}", "--timezone", "Asia/Tokyo")
    assert (done.lines[-1], len(schedules()), schedules()[0].timezone) == ("1 changed", 1, "Asia/Tokyo")


# --- lines of other kinds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("61 * * * * curl x", "The minute '61' cannot be read: it runs from 0 to 59."),
        ("* * * * *", "This is neither a variable nor five time fields and a command."),
        ("@fortnightly curl x", "The macro '@fortnightly' is unknown"),
        ("* * * * * curl -d a\\\\b x", "Two backslashes in a row are read differently by different crons."),
        ("https_proxy=http://p\n* * * * * curl x", "The variable in line 1 changes what curl does"),
        ("RANDOM_DELAY=5", "RANDOM_DELAY is not carried over"),
        ("# chronos: {}", "No line stands right below this chronos comment."),
        ("# chronos: {}\n\n* * * * * curl x", "No line stands right below this chronos comment."),
        ("# chronos: {}\n# chronos: {}\n* * * * * curl x", "Another chronos comment follows for the same line."),
    ],
)
def test_lines_that_cron_or_chronos_cannot_follow_are_told(line: str, reason: str) -> None:
    found = crontab.parse(line.encode())
    assert reason in found.faults[0].text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("nonsense", "1: The chronos comment: The body is no JSON that can be taken"),
        ("[]", "1: The chronos comment: It must be a JSON object"),
        ('{"cron": "* * * * *"}', "1: The chronos comment: cron does not belong here"),
        ('{"tags": 3}', "2: tags: Give a list of strings."),
        ('{"colour": 3}', "2: colour: There is no field of this name here."),
        ('{"delivery": 3}', "2: delivery: Give an object, not a int."),
        ('{"target": {"url": "https://10.0.0.1"}}', "2: target.url: This URL cannot be called: 10.0.0.1 is not"),
        ('{"tags": [], "tags": []}', "given twice"),
    ],
)
def test_a_chronos_comment_is_checked_as_the_api_checks(load: Any, comment: str, reason: str) -> None:
    done = load(f"# chronos: {comment}\n* * * * * curl {URL}\n")
    assert (done.code, Schedule.objects.exists()) == (1, False)
    assert reason in done.lines[0]


@pytest.mark.parametrize(
    ("text", "command", "stdin"),
    [
        ("curl x", "curl x", None),
        (r"curl a\%b", "curl a%b", None),
        ("curl%one%two", "curl", "one\ntwo\n"),
        ("curl%one%", "curl", "one\n"),
        ("curl%", "curl", ""),
        (r"curl%50\%%a\b", "curl", "50%\na\\b\n"),
    ],
)
def test_a_percent_sign_begins_the_standard_input_and_new_lines_of_it(
    text: str, command: str, stdin: str | None
) -> None:
    assert crontab.split_percent(text) == (command, stdin)


# --- curl -----------------------------------------------------------------------------------------------------

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json", "Accept": "application/json"}


def call(url: str = URL, method: str = "GET", headers: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    delivery = more.pop("delivery", {"retry": {"max_attempts": 1}})
    return {"target": {"url": url, "method": method, "headers": headers or {}}, "delivery": delivery, **more}


BECOMES = [
    (f"curl {URL}", call()),
    (f"/usr/local/bin/curl --url {URL}", call()),
    ("curl example.com/x", call("http://example.com/x")),
    (f"curl -fsSL {URL}", call()),
    (f"curl -s -S -f -v -i -N -# --no-progress-meter -o /dev/null -w '%{{http_code}}' {URL}", call()),
    (f"curl -so/dev/null {URL} >/dev/null 2>&1 </dev/null", call()),
    (f"curl {URL} &>/dev/null", call()),
    (f"curl -X DELETE {URL}", call(method="DELETE")),
    (f"curl -XPOST {URL}", call(method="POST")),
    (f"curl --request PATCH {URL} # nightly", call(method="PATCH")),
    (f"curl -I {URL}", call(method="HEAD")),
    (f"curl -sI {URL}", call(method="HEAD")),
    (f"curl -d '' {URL}", call(method="POST")),
    (f"""curl -d '{{"a": [1, 2.5]}}' {URL}""", call(method="POST", headers=FORM, payload={"a": [1, 2.5]})),
    (f"""curl --data-raw '"@x"' {URL}""", call(method="POST", headers=FORM, payload="@x")),
    (f"""curl --data-binary "{{\\"a\\": \\"\\$5\\"}}" {URL}""", call(method="POST", headers=FORM, payload={"a": "$5"})),
    (f"""curl -X PUT --json '{{"a"' --json ':1}}' {URL}""", call(method="PUT", headers=JSON, payload={"a": 1})),
    (
        f"""curl --json '[1]' -H 'accept: text/plain' {URL}""",
        call(method="POST", headers={"accept": "text/plain", "Content-Type": "application/json"}, payload=[1]),
    ),
    (
        f"""curl -H 'content-type: application/json' -H X-A:b -H 'X-Empty;' -d 3 {URL}""",
        call(method="POST", headers={"content-type": "application/json", "X-A": "b", "X-Empty": ""}, payload=3),
    ),
    (f"curl -A me -e https://example.com {URL}", call(headers={"User-Agent": "me", "Referer": "https://example.com"})),
    (f"curl -G -d a=1 -d b=2 {URL}", call(f"{URL}?a=1&b=2")),
    (f"curl -G --data-urlencode 'q=a b&c' '{URL}?x=1#there'", call(f"{URL}?x=1&q=a+b%26c")),
    (f"curl -m 10 {URL}", call(delivery={"timeout_s": 10.0, "retry": {"max_attempts": 1}})),
    (f"curl --max-time 2.5 --retry 3 {URL}", call(delivery={"timeout_s": 2.5, "retry": {"max_attempts": 4}})),
    (f"curl -m0 --retry 0 {URL}", call()),
    (
        f"curl --retry 2 --retry-delay 5 --retry-max-time 60 --retry-connrefused {URL}",
        call(
            delivery={
                "retry": {
                    "max_attempts": 3,
                    "initial_backoff_s": 5.0,
                    "multiplier": 1.0,
                    "jitter": "none",
                    "max_backoff_s": 300.0,
                    "max_elapsed_s": 60.0,
                }
            }
        ),
    ),
    (f"curl {URL}?a=1", call(f"{URL}?a=1")),
    (f"curl -g '{URL}?a[]=1'", call(f"{URL}?a[]=1")),
    ("curl 'http://[2606:4700::1]/x'", call("http://[2606:4700::1]/x")),
    (f"curl {URL} --connect-timeout 5 --compressed", call()),
    (f"curl -s -- {URL}", call()),
]  # fmt: skip


@pytest.mark.parametrize(("command", "fields"), BECOMES, ids=[command for command, _ in BECOMES])
def test_what_a_curl_command_becomes(command: str, fields: dict[str, Any]) -> None:
    assert read_curl(words_of(command))[0] == fields


REFUSED = [
    ("curl -u me:sesame https://example.com", "-u: secrets do not belong into schedules"),
    ("curl --user me https://example.com", "--user: secrets do not belong into schedules"),
    ("curl -ume:sesame https://example.com", "-u: secrets do not belong into schedules"),
    ("curl https://me:sesame@example.com/", "The URL holds a user and perhaps a password"),
    ("curl -b s=1 https://example.com", "-b: secrets do not belong into schedules"),
    ("curl -n https://example.com", "-n: secrets do not belong into schedules"),
    ("curl https://example.com/a https://example.com/b", "more than one URL"),
    ("curl", "There is no URL."),
    ("curl -d a=1 https://example.com", "Its body is no JSON"),
    ("curl -d 1 -d 2 https://example.com", "Its body is no JSON"),
    ("curl -d NaN https://example.com", "Its body is no JSON"),
    ("""curl -d '{"a":1,"a":2}' https://example.com""", "Its body is no JSON"),
    ("curl -d null https://example.com", "Its body is null"),
    ("curl -X GET -d 1 https://example.com", "It sends a body with GET"),
    ("curl -I -d 1 https://example.com", "-I with data"),
    ("curl -d @file https://example.com", "-d: its data come from a file"),
    ("curl -d @- https://example.com", "-d: its data come from a file"),
    ("curl --data-urlencode a@file https://example.com", "its data come from a file"),
    ("curl -H @file https://example.com", "headers come from a file"),
    ("curl -H Accept: https://example.com", "takes the header 'Accept' away"),
    ("curl -H nonsense https://example.com", "is no header"),
    ("curl -H 'A: 1' -H 'a: 2' https://example.com", "the header 'a' is given twice"),
    ("curl -F a=b https://example.com", "-F: forms in parts"),
    ("curl -T x https://example.com", "-T: it reads or writes files"),
    ("curl -O https://example.com", "-O: it reads or writes files"),
    ("curl -o /backup/x https://example.com", "-o: it writes the file '/backup/x'"),
    ("curl -K x https://example.com", "-K: it reads or writes files"),
    ("curl -k https://example.com", "-k: certificates are always checked"),
    ("curl -sk https://example.com", "-k: certificates are always checked"),
    ("curl -x p https://example.com", "-x: how the connection is made"),
    ("curl -m soon https://example.com", "-m: 'soon' is no number of seconds"),
    ("curl --retry -1 https://example.com", "--retry: '-1' is no number of retries"),
    ("curl https://example.com -m", "-m: its value is missing"),
    ("curl --max-time=5 https://example.com", "this option cannot be carried over"),
    ("curl --frobnicate https://example.com", "'--frobnicate': this option cannot be carried over"),
    ("curl -@ https://example.com", "'-@': this option cannot be carried over"),
    ("curl ftp.example.com", "another protocol than HTTP"),
    ("curl 'https://example.com/{a,b}'", "curl makes several URLs"),
    ("curl 'https://example.com/[1-3]'", "curl makes several URLs"),
    ("curl https://example.com/{a,b}", "The shell may change the word"),
    ("curl https://example.com/?a=1&b=2", "A bare & ends the command"),
    ("curl https://example.com && echo ok", "more than one command ('&&')"),
    ("curl https://example.com || true", "more than one command ('||')"),
    ("cd /tmp; curl https://example.com", "more than one command (';')"),
    ("curl https://example.com | sh", "through a pipe"),
    ("curl https://example.com >> /var/log/x", "Its output goes into the file '/var/log/x'"),
    ("curl https://example.com 2> err", "Its output goes into the file 'err'"),
    ("curl -d @- https://example.com < body", "Its standard input comes from a file"),
    ("curl https://example.com/$X", "It puts a variable in ('$X')"),
    ('curl "https://example.com/${X}"', "It puts a variable in ('${X}')"),
    ('curl "https://example.com/$(date)"', "the output of another command"),
    ("curl https://example.com/`date`", "the output of another command in (backquotes)"),
    ("curl -d {} https://example.com", "The shell may change the word '{}'"),
    ("curl -d [1] https://example.com", "The shell may change the word '[1]'"),
    ("curl ~/x", "The shell may change the word '~/x'"),
    ("curl 'https://example.com", "A single quote is not closed."),
    ('curl "https://example.com', "A double quote is not closed."),
    ("A=1 curl https://example.com", "It sets a variable for its command"),
    ("root curl https://example.com", "the user's column of a system crontab"),
    ("flock -n /tmp/x curl https://example.com", "It runs 'flock'"),
    ("python3 job.py", "It runs 'python3'"),
    ("# nothing", "There is no command."),
]


@pytest.mark.parametrize(("command", "reason"), REFUSED, ids=[command for command, _ in REFUSED])
def test_what_cannot_be_carried_over_is_refused_with_its_reason(command: str, reason: str) -> None:
    with pytest.raises(NotPlain) as caught:
        read_curl(words_of(command))
    assert reason in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_the_text_after_a_percent_sign_is_the_body_that_curl_reads_from_its_standard_input() -> None:
    fields, _ = read_curl(["curl", "-d", "@-", URL], stdin='{"a":\n1}\n')
    assert fields["payload"] == {"a": 1}
    fields, _ = read_curl(["curl", URL], stdin="nobody reads this\n")
    assert "payload" not in fields


def test_a_redirect_that_is_not_followed_and_a_body_with_a_forms_type_are_told() -> None:
    _, notes = read_curl(words_of(f"curl -L -d 1 {URL}"))
    assert notes == [
        "-L: redirects are not followed; an answer of 3xx is a failure.",
        "The body is JSON, and curl sends it as application/x-www-form-urlencoded: kept so.",
    ]


# --- the real programs as judges ------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [" ", "\t", "a", "é", "-d", "'", '"', "\\", "\\\\", "$", "$5", "`", "#", "~", "=", "1", "2>/dev/null", ">/dev/null",
     "2>&1", "&", ";", "|", "*", "{", "}", "'a b'", '"a b"', '"\\$"', "'\\'", "%", "!", "/", ":", "@", "\\ "]
)  # fmt: skip


@given(st.lists(PIECES, max_size=8).map("".join))
@example("""a 'b'"c"\\d '' "" #x""")
@example('"a\\"b\\c\\`"')
@example("12>/dev/null")
def test_words_are_those_that_the_shell_makes(text: str) -> None:
    try:
        words = words_of(f"printf {text}")
    except NotPlain:
        return
    script = f"""printf() {{ for word in "$@"; do command printf '%s\\0' "$word" >&9; done; }}\nprintf {text}"""
    told = subprocess.run(
        ["/bin/sh", "-c", f'exec 9>&1\n{script}'], check=False, capture_output=True, cwd="/", env={}, text=True
    )  # fmt: skip
    assert told.stdout.split("\0")[:-1] == words[1:]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine to compare with")
@pytest.mark.parametrize("command", [command for command, _ in BECOMES if URL in command and " -I" not in command])
def test_curl_itself_sends_what_the_schedule_will_send(receiver: ProgrammableReceiver, command: str) -> None:
    local = (
        command.replace("/usr/local/bin/curl", "curl").replace(URL, receiver.url("/hook")).replace(" -fsSL", " -fsS")
    )
    subprocess.run(["/bin/sh", "-c", local], check=True, capture_output=True, timeout=20)
    fields, _ = read_curl(words_of(local))
    (seen,) = receiver.requests
    target = fields["target"]
    assert (seen.method, receiver.url(seen.path)) == (target["method"], target["url"].partition("#")[0])
    sent = {name.lower(): value for name, value in seen.headers.items()}
    assert {name.lower(): value for name, value in target["headers"].items()}.items() <= sent.items()
    if "payload" in fields:
        assert json.loads(seen.body) == fields["payload"]
    else:
        assert seen.body == b""


# --- hostile files --------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("content", "first"),
    [
        (b"\x7fELF\x02\x01\x01\0\0" + bytes(range(256)) * 100, "1: This is no text file: it holds a NUL byte."),
        (b"* * * * * curl \xff\xfe", "1: The line is not UTF-8 at byte 16; save it as UTF-8."),
        (b"* * * * * " + b"a" * 200_000, "1: The line has 200,010 bytes; cron takes at most 131,072."),
        (b"\x1b[2J\n", "1: This is neither a variable nor five time fields and a command."),
        (b"* * * * * \x1b\x07curl\n", "1: It runs '\\x1b\\x07curl'"),
    ],
)
def test_a_hostile_file_is_refused_by_its_line(load: Any, content: bytes, first: str) -> None:
    done = load(content)
    assert (done.code, done.lines[0].startswith(first)) == (1, True)
    assert "\x1b" not in done.out
    assert not Schedule.objects.exists()


@pytest.mark.django_db
def test_a_line_of_fifty_megabytes_is_not_even_read(load: Any) -> None:
    done = load(b"* * * * * curl " + b"a" * 50_000_000)
    assert (done.code, done.error.endswith("is larger than 10 MiB; split it.")) == (2, True)


@pytest.mark.django_db
def test_more_entries_than_a_file_may_hold_are_refused(load: Any) -> None:
    done = load("* * * * * a\n" * 20_001)
    assert (done.code, "more than 20,000 entries" in done.error) == (2, True)


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(400)  # on a machine that is busy with other things
def test_ten_thousand_lines_are_imported_in_one_go(load: Any, django_assert_max_num_queries: Any) -> None:
    text = "".join(
        f"{n % 60} {n % 24} * * * curl -fsS -m 10 -d '{{\"n\": {n}}}' '{URL}/{n}' >/dev/null 2>&1\n"
        for n in range(10_000)
    )
    begun = time.process_time()  # of this process alone: the machine may be busy with other things
    with django_assert_max_num_queries(80):
        done = load(text)
    assert time.process_time() - begun < 30
    assert (done.code, done.lines[-1]) == (0, "10000 made")
    assert "read 10,000 of 10,000 lines" in done.err
    assert load(text).lines[-1] == "10000 unchanged"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--workspace", "nobody"], "There is no workspace 'nobody'."),
        (["--workspace", "acme", "--timezone", "Mars"], "The time zone 'Mars' is unknown"),
        (["--workspace", "acme", "--prefix", "a b"], "--prefix is 1 to 80 of"),
        (["--workspace", "acme"], "/nowhere cannot be read: No such file or directory."),
    ],
)
def test_what_cannot_be_done_is_one_clear_sentence(workspace: Workspace, options: list[str], sentence: str) -> None:
    with pytest.raises(CommandError) as caught:
        call_command("import_crontab", "/nowhere", *options)
    assert sentence in str(caught.value)
    assert caught.value.returncode == 2


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    return one, two


@pytest.mark.django_db
def test_a_prefix_keeps_two_machines_with_files_of_one_name_apart(
    folders: tuple[Path, Path], workspace: Workspace
) -> None:
    for folder, prefix in zip(folders, ("web1", "web2"), strict=True):
        done = Imported(f"0 1 * * * curl {URL}", folder, workspace, "--prefix", prefix)
        assert (done.lines[-1], "earlier imports" in done.err) == ("1 made", False)
    assert [row.external_key.split(":")[0] for row in schedules() if row.external_key] == ["web1", "web2"]
