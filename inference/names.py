"""Which of the names that a model finds are worth keeping, and which texts it can read."""

import re
from collections.abc import Iterable

from inference.protocols import Name

LABELS = frozenset(
    {
        *("PERSON", "ORG", "GPE", "LOC", "FAC", "PRODUCT", "WORK_OF_ART", "EVENT", "NORP"),
        *("LAW", "LANGUAGE"),
        "PER",  # what the models of most other languages call a person
    }
)
MIN_CHARS = 2
MAX_CHARS = 100
RULES = 1  # raise it when this module's answers change: it is part of the cache's key

_LATIN = "A-Za-zªºÀ-ÖØ-öø-ɏ\u1e00-\u1eff\uff21-\uff3a\uff41-\uff5a"
_LATIN_WORD = re.compile(f"[{_LATIN}]{{2}}")
_OTHER_LETTER = re.compile(f"(?:(?![{_LATIN}])[^\\W\\d_])")


def has_latin_word(text: str) -> bool:
    """Tell whether a model that knows only the Latin script can find a name in `text`."""
    return _LATIN_WORD.search(text) is not None


def keep(found: Iterable[Iterable[str]], *, only_latin: bool) -> tuple[Name, ...]:
    """Return the names worth keeping of `found`, (text, label) pairs, in their order.

    Numbers, dates and sums go by their label; with `only_latin`, a name with a letter of another
    script goes as well: the model guessed.
    """
    tidy = (Name(" ".join(text.split()), label) for text, label in found)
    return tuple(name for name in tidy if _is_kept(name, only_latin=only_latin))


def _is_kept(name: Name, *, only_latin: bool) -> bool:
    return (
        name.label in LABELS
        and MIN_CHARS <= len(name.text) <= MAX_CHARS
        and any(c.isalpha() for c in name.text)
        and not (only_latin and _OTHER_LETTER.search(name.text))
    )
