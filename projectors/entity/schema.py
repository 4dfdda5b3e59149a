"""The constants of the entity projection, and its named SQL."""

from pathlib import Path
from typing import Final

from sqlalchemy import TextClause

from canonical.store import statements

NAME: Final = "entity"
VERSION: Final = "1"  # of the mapping; raise it when names, keys or ids change: a rebuild follows
SQL: Final = Path(__file__).parent / "sql"

MAX_NAME_CHARS: Final = 100
PARTIAL: Final = 0.8  # similarity of a name of which every word is there, but not as the name
FLOOR: Final = 0.3  # one word in two is enough, one in three is not
# A hub says little: of two entities, the one with fewer records. The shape is mem0's.
HUB: Final = 0.001

# How much a kind of name tells about what a query is after. A model labels one name now this way,
# now that way (`Maria` is a person or a group), so the weights are close together.
WEIGHTS: Final = {"NORP": 0.8, "LANGUAGE": 0.8, "GPE": 0.9, "LOC": 0.9}
WEIGHT: Final = 1.0  # of any other label


def named(name: str) -> TextClause:
    """Return a statement of this projection."""
    return statements.named(name, SQL)
