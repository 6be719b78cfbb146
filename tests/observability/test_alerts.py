"""Alert rules and the dashboard speak of metrics that are there, and every alert has its page in the runbook."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

# Registers what the workers, the loops and the API count.
import execution.dispatch.runtime  # noqa: F401
from tests.clients import ApiClient

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "docker" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "docker" / "grafana" / "chronos.json"
RUNBOOK = ROOT / "docs" / "operations.md"
NAME = re.compile(r"\b(?:chronos|process)_[a-z_]+")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + shown


@pytest.mark.django_db(transaction=True)
def test_every_metric_named_in_rules_dashboard_and_runbook_is_shown() -> None:
    there: set[str] = set()
    for family in text_string_to_metric_families(ApiClient(None).get("/metrics").text):
        there.add(family.name)
        if family.type == "counter":
            there.add(f"{family.name}_total")
        if family.type == "histogram":
            there |= {f"{family.name}_{end}" for end in ("bucket", "count", "sum")}
    named = {name for text in [*expressions(), *_documented()] for name in NAME.findall(text)}
    assert named - there == set()


def _documented() -> list[str]:
    return [line.split("|")[1] for line in RUNBOOK.read_text().splitlines() if line.startswith("| `chronos_")]


def test_every_alert_says_what_how_bad_and_where_to_read_on() -> None:
    anchors = {line[4:].strip().lower() for line in RUNBOOK.read_text().splitlines() if line.startswith("### ")}
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        page, anchor = rule["annotations"]["runbook_url"].split("#")
        assert (ROOT / page).is_file(), rule["alert"]
        assert anchor in anchors, rule["alert"]


def test_every_panel_has_a_title_and_a_source_that_is_chosen() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    (variable,) = dashboard["templating"]["list"]
    for panel in dashboard["panels"]:
        assert panel["title"]
        assert panel["datasource"]["uid"] == f"${{{variable['name']}}}"
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_takes_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
