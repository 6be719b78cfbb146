"""One folder with a running stack for the tests that only look at it; folders of their own for those that end one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronos_site.stack.accounts import make_temporary_home, remove_home
from chronos_site.stack.homes import HomeLock, stop_leftovers
from chronos_site.stack.processes import stop_recorded
from tests.stack.ups import UP, Up

PREFIX = "chronos-stack-test-"


@pytest.fixture(scope="module")
def stack_folder() -> Iterator[Path]:
    """A folder that PostgreSQL's account can reach, whoever runs the tests; what still runs in it is stopped."""
    folder = make_temporary_home(PREFIX)
    lock = HomeLock(folder)
    stop_leftovers(folder, PREFIX)
    (folder / "run").mkdir()
    yield folder
    lock.release()
    for home in folder.iterdir():
        if (home / "run").is_dir():
            stop_recorded(home / "run")
            remove_home(home)
    remove_home(folder)


@pytest.fixture(scope="module")
def running(stack_folder: Path) -> Iterator[Up]:
    """`manage.py up` in an empty environment and a new folder, once it says that it is up."""
    up = Up(stack_folder / "shared")
    try:
        up.wait_until_said(UP)
        yield up
    finally:
        up.end()
