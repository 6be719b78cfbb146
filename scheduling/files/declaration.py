"""A YAML file of schedules: what it declares, or everything that is wrong with it, each with its line.

    prefix: billing/            # optional: every key begins so, and --prune is for keys that begin so
    schedules:
      - key: billing/nightly
        cron: "0 2 * * *"
        timezone: Europe/Berlin
        target: {url: "https://example.com/hooks/nightly"}

JSON is YAML, so a JSON file of the same shape is read as well.
"""

from dataclasses import dataclass, field
from typing import Any

from scheduling.files.crontab import MOST_ENTRIES, Fault
from scheduling.files.shape import ShapeReader, Wanted
from scheduling.files.yaml_text import Mapping, Sequence, YamlFault, line_of, read_yaml

MOST_BYTES = 10 * 1024 * 1024
MEMBERS = ("prefix", "schedules")


@dataclass(slots=True)
class Declaration:
    prefix: str | None = None
    wanted: list[Wanted] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def read_declaration(raw: bytes) -> Declaration:
    """Never raises for what the file says."""
    twins: list[YamlFault] = []
    try:
        document = read_yaml(raw.decode("utf-8-sig"), twins=twins)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return Declaration(faults=[Fault(line, "The file is not UTF-8.")])
    except YamlFault as fault:
        return Declaration(faults=[Fault(fault.line, fault.text)])
    found = Declaration(faults=[Fault(twin.line, twin.text) for twin in twins])
    if not isinstance(document, Mapping):
        found.faults.append(Fault(1, "The file is an object with the member schedules, a list."))
        return found
    for name in document.keys() - set(MEMBERS):
        found.faults.append(
            Fault(document.lines[name], f"There is no member {name[:60]!r} here, only prefix and schedules.")
        )
    _read_prefix(document, found)
    _read_schedules(document, found)
    found.faults.sort(key=lambda fault: fault.line)
    return found


def _read_prefix(document: Mapping, found: Declaration) -> None:
    prefix = document.get("prefix")
    if "prefix" not in document:
        return
    if not isinstance(prefix, str) or not prefix.strip():
        found.faults.append(Fault(document.lines["prefix"], "prefix: Give a text that is not empty, like billing/."))
    else:
        found.prefix = prefix


def _read_schedules(document: Mapping, found: Declaration) -> None:
    items = document.get("schedules")
    if not isinstance(items, Sequence):
        line = document.lines.get("schedules", document.line)
        found.faults.append(Fault(line, "schedules: Give a list of schedules; [] where there is none."))
        return
    if len(items) > MOST_ENTRIES:
        found.faults.append(
            Fault(items.line, f"schedules: A file holds at most {MOST_ENTRIES:,} schedules, not {len(items):,}.")
        )
        return
    reader = ShapeReader()
    seen: dict[str, int] = {}
    for item, line in zip(items, items.lines, strict=True):
        read = reader.read(item, line=abs(line), locate=_locator(item, line))
        if isinstance(read, list):
            found.faults += read
        else:
            found.faults += _faults_of_key(read, found.prefix, seen)
            found.wanted.append(read)


def _locator(item: Any, line: int) -> Any:
    return lambda path: abs(line_of(item, path)) if isinstance(item, Mapping) else abs(line)


def _faults_of_key(item: Wanted, prefix: str | None, seen: dict[str, int]) -> list[Fault]:
    if item.key in seen:
        return [item.fault(f"key: This key stands in line {seen[item.key]} already.", "key")]
    seen[item.key] = item.line
    if prefix is not None and not item.key.startswith(prefix):
        return [item.fault(f"key: It must begin with the file's prefix, {prefix!r}.", "key")]
    return []
