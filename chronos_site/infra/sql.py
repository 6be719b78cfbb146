"""Named SQL statements: one file each in an app's `sql/` folder, read once and kept."""

from functools import cache
from importlib.resources import files


@cache
def statement(package: str, name: str) -> str:
    """The text of `<package>/sql/<name>.sql`. Raises FileNotFoundError where there is none."""
    return files(package).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
