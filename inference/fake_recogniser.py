"""A recogniser that needs no model: runs of capitalised words are names; the same every time."""

import re
from collections.abc import Sequence

from canonical.errors import PoisonError
from inference import names
from inference.protocols import Name

_WORD = r"[A-ZÀ-ÖØ-Þ][\w&'’-]*"  # noqa: RUF001 - a typographic apostrophe is meant
_RUN = re.compile(rf"{_WORD}(?: {_WORD})*")
_NOT_NAMES = frozenset(("A", "An", "And", "At", "He", "I", "In", "It", "My", "On", "She", "The"))


class FakeRecogniser:
    """For tests and demonstrations: keeps the promises of the port, knows nothing of language."""

    @property
    def model(self) -> str:
        """Name the rule and its version."""
        return f"capitals-1+{names.RULES}"

    def recognise(self, texts: Sequence[str]) -> list[tuple[Name, ...] | PoisonError]:
        """Return the runs of capitalised words of each text."""
        return [names.keep(_runs(text), only_latin=True) for text in texts]


def _runs(text: str) -> list[tuple[str, str]]:
    found = (match.group().rstrip("'’-&") for match in _RUN.finditer(text))  # noqa: RUF001 - as above
    return [(run, "PERSON" if " " in run else "ORG") for run in found if run not in _NOT_NAMES]
