"""Faults in the product, each of which the checker must catch: a judge that never condemns is worth nothing.

A mutant is a copy of the checkout with a few lines changed (and a database without a constraint). The lines must be
found exactly once, so that a mutant does not quietly become the product when the product changes.
"""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.world import World

SOURCES = ("chronos_site", "execution", "scheduling", "bulk", "manage.py")


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    text: str
    scenario: str
    """The scenario that must catch it."""
    edits: tuple[tuple[str, str, str], ...] = ()
    """File, the text there, what takes its place."""
    prepare: Callable[[World], None] = lambda _world: None

    def plant(self, *, root: Path, into: Path) -> Path:
        """Copy the product and change it. Raises RuntimeError where a text is not there exactly once."""
        tracked = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", *SOURCES],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in tracked.stdout.splitlines():
            if (root / name).is_file():
                target = into / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / name, target)
        for name, old, new in self.edits:
            text = (into / name).read_text(encoding="utf-8")
            if text.count(old) != 1:
                raise RuntimeError(f"{self.name}: {name} holds {old!r} {text.count(old)} times, not once")
            (into / name).write_text(text.replace(old, new), encoding="utf-8")
        return into


def _drop_constraint(world: World) -> None:
    with world.database() as db:
        db.execute("DROP INDEX execution_occurrence")


MUTANTS = (
    Mutant(
        "monitor-off",
        "the monitor mends nothing",
        "valkey-flushed-with-backlog",
        edits=(("execution/tasks.py", "    monitor.mend()\n", "    monitor.steady_for_s(monitor.NAME)\n"),),
    ),
    Mutant(
        "fence-never-released",
        "the idempotency key is set at the claim, names no attempt and is never released",
        "worker-killed-before-send",
        edits=(
            (
                "execution/dispatch/fence.py",
                'keys, arguments = [], ["1" if only_new else "0"]\n',
                'keys, arguments = [], ["1"]\n',
            ),
            ("execution/dispatch/fence.py", '{claim.id}:{claim.attempt}")', '{claim.id}")'),
            (
                "execution/dispatch/engine.py",
                "                claims = await self._claim(part)\n",
                "                claims = await self._claim(part)\n"
                "                await self._gate._fence.take(claims)\n",
            ),
        ),
    ),
    Mutant(
        "constraint-dropped",
        "the unique constraint on (schedule, scheduled_for, run) is gone",
        "occurrence-made-twice",
        prepare=_drop_constraint,
    ),
    Mutant(
        "cursor-before-rows",
        "the cursor of a bulk job's file moves in a transaction of its own, before the rows are in the table",
        "bulk-killed",
        edits=(
            ("bulk/ingest.py", "        with transaction.atomic():\n", "        if True:\n"),
            (
                "bulk/ingest.py",
                "            with connection.cursor() as cursor, cursor.copy(COPY) as copy:\n"
                "                for text in lines:\n",
                "            texts = list(lines)\n"
                "            transitions.advance_cursor(\n"
                "                job_id=job.id, seq=seq, offset=lines.offset, line=lines.line,\n"
                "                rows=len(texts), invalid=lines.invalid,\n"
                "            )\n"
                "            with connection.cursor() as cursor, cursor.copy(COPY) as copy:\n"
                "                for text in texts:\n",
            ),
            (
                "bulk/ingest.py",
                "            kept = transitions.advance_cursor(\n"
                "                job_id=job.id, seq=seq, offset=lines.offset, line=lines.line, rows=rows,"
                " invalid=lines.invalid\n"
                "            )\n",
                "            kept = bool(rows)\n",
            ),
        ),
    ),
)

SHORT_MUTANTS = ("constraint-dropped",)
"""Those that show within a minute; the short run plants them."""
