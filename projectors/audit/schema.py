"""The constants of the audit projection, and its named SQL."""

from pathlib import Path
from typing import Final

from sqlalchemy import TextClause

from canonical.store import statements

NAME: Final = "audit"
VERSION: Final = "1"  # of the chain's encoding
SQL: Final = Path(__file__).parent / "sql"

BEGINNING: Final = bytes(32)  # what stands before a shard's first entry


def named(name: str) -> TextClause:
    """Return a statement of this projection."""
    return statements.named(name, SQL)
