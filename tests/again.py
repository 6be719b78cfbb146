"""`python -m tests.again`: a few tests that failed run once more by themselves, and are named whatever comes of it.

Some promises are about time, and a machine shared with others can take a test's seconds away. That happens to one test
or two. More failures than a handful are no accident, so then nothing is run again.
"""

import json
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(__file__).resolve().parent.parent / ".pytest_cache" / "v" / "cache" / "lastfailed"
HANDFUL = 3


def main() -> int:
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if not failed:
        return _refuse("No test is known to have failed: the run itself went wrong, which is not tried again.")
    if len(failed) > HANDFUL:
        return _refuse(f"{len(failed)} tests failed: with more than {HANDFUL}, none is tried again.")
    _say("These tests failed, and are run once more:", failed)
    # By the cache and not by their names: a parameter may hold what a command line cannot.
    code = subprocess.run([sys.executable, "-m", "pytest", "--last-failed"], cwd=LAST_FAILED.parents[3]).returncode
    _say("They passed at the second try:" if code == 0 else "They failed twice:", failed)
    return code


def _refuse(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return 1


def _say(what: str, tests: list[str]) -> None:
    sys.stdout.write("\n".join([what, *(f"  {test}" for test in tests)]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
