"""The page that says what comes in says what the door does."""

from pathlib import Path

import pytest

from canonical.domain import commands, filters
from canonical.domain.door import LIMITS
from canonical.domain.filters import SYSTEM_FIELDS, Operator
from canonical.domain.records import Trust

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "input-rules.md").read_text()
BOUNDS = {
    "text": f"1 to {LIMITS.text_bytes:,} bytes",
    "query": f"at most {LIMITS.query_bytes:,} bytes",
    "note": f"at most {4 * LIMITS.id_chars:,} bytes",
    "id": f"1 to {LIMITS.id_chars} characters",
    "metadata": f"at most {LIMITS.metadata_bytes:,} bytes",
    "depth": f"and {LIMITS.metadata_depth} levels",
    "list": f"at most {LIMITS.list_items:,}, one transaction",
    "messages": f"at most {LIMITS.source_messages} ids",
    "part": f"0 to {commands.MAX_EVENT_PART:,}",
    "top_k": f"0 to {LIMITS.top_k}",
    "choices": f"1 to {filters.MAX_CHOICES} values",
    "conditions": f"{filters.MAX_CONDITIONS}\nconditions and {filters.MAX_DEPTH} levels",
}


@pytest.mark.parametrize("what", BOUNDS)
def test_bounds_are_those_of_the_code(what: str) -> None:
    assert BOUNDS[what] in PAGE


def test_every_word_that_is_reserved_or_understood_is_named() -> None:
    words = {*SYSTEM_FIELDS, *Trust, *Operator, *commands.ATTRIBUTIONS, "ne", "contains"}
    named = {word for word in words if f"`{word}`" in PAGE or f'"{word}"' in PAGE}
    assert named == words


def test_every_field_of_a_memory_has_a_rule() -> None:
    for field in commands.NEW_FIELDS - {"text"}:
        assert f"`{field}`" in PAGE
