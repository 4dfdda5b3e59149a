"""The entity leg's statement is held by the shape of what is asked, and by nothing less."""

from collections import defaultdict
from datetime import timedelta
from itertools import product

from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from canonical.store.reading import shape
from projectors.entity import reader
from tests.support.builders import NOW

SCOPES = (
    Scope("one", "a"),
    Scope("two", "b"),
    Scope("one", None, "a"),
    Scope("one", "a", "b", "c"),
)
TIMES = (NOW, NOW - timedelta(days=1), NOW - timedelta(days=2))


def test_one_shape_has_one_text_and_another_text_another_shape() -> None:
    """P5, P6: a held statement never hides or shows more than the caller's own would."""
    texts: dict[object, set[bytes]] = defaultdict(set)
    for scope, as_of, superseded, expired in product(SCOPES, TIMES, (True, False), (True, False)):
        visible = Visible(
            scope=scope, now=NOW, as_of=as_of, include_superseded=superseded, show_expired=expired
        )
        texts[shape(visible)].add(reader._compiled(visible)[0])
    assert all(len(found) == 1 for found in texts.values())
    assert len(set().union(*texts.values())) == len(texts)


def test_a_held_statement_keeps_no_value_of_who_asked_first() -> None:
    """P5: a value that a caller left out must fail, not come from another tenant."""
    first = Visible(scope=SCOPES[0], now=NOW, as_of=NOW)
    for _ in range(2):
        _, defaults = reader._statement(first)
        assert defaults == {}
