"""The named SQL of a package: one statement a file, headed by its contract."""

import re
from functools import cache
from pathlib import Path

from sqlalchemy import TextClause, text

FOLDER = Path(__file__).parent / "sql"
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


@cache
def named(name: str, folder: Path = FOLDER) -> TextClause:
    """Return the statement `name` for SQLAlchemy; parameters are written `:name`."""
    return text(_body(name, folder))


@cache
def for_driver(name: str, folder: Path = FOLDER) -> bytes:
    """Return the statement `name` for psycopg itself: pipelines and COPY are its own."""
    return _PARAMETER.sub(r"%(\1)s", _body(name, folder)).encode()


def _body(name: str, folder: Path) -> str:
    lines = (folder / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("--"))
