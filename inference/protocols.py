"""What Gnomon asks of a model, whoever runs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from canonical.errors import PoisonError

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def model(self) -> str:
        """Name the model; vectors of different models never mix."""
        ...

    @property
    def dimension(self) -> int:
        """Return the length of every vector."""
        ...

    @property
    def unrelated(self) -> float:
        """Return the cosine that unrelated texts typically reach: the zero of relevance."""
        ...

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32] | PoisonError]:
        """Return for each text its vector, of length 1, or why the model refuses that text.

        Raises: ModelUnavailableError, when the model doesn't answer; nothing is known then.
        """
        ...


@dataclass(frozen=True, slots=True)
class Name:
    """A name found in a text."""

    text: str  # as it stands there
    label: str  # PERSON, ORG, GPE …


class Recogniser(Protocol):
    """Finds names in texts."""

    @property
    def model(self) -> str:
        """Name the model and its version."""
        ...

    def recognise(self, texts: Sequence[str]) -> list[tuple[Name, ...] | PoisonError]:
        """Return for each text its names in order of appearance, or why the model refuses it.

        Raises: ModelUnavailableError, when the model doesn't answer; nothing is known then.
        """
        ...
