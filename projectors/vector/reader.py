"""Search by meaning, whichever engine holds the index."""

from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from canonical.domain.visibility import Visible
from canonical.errors import EngineMismatchError
from projectors.protocol import Hit
from projectors.vector.mapping import rev_of
from projectors.vector.port import VectorEngine
from projectors.vector.predicates import seen


class PointReader:
    """The reading side of the vector projection; any number of threads."""

    def __init__(self, engine: VectorEngine) -> None:
        self._engine = engine

    def nearest(
        self, vector: NDArray[np.float32], *, visible: Visible, limit: int, timeout: timedelta
    ) -> list[Hit]:
        """Return the memories nearest to `vector`, best first; score is the cosine.

        Guarantee: only what `visible` lets through, filtered inside of the search.
        Raises:    EngineMismatchError, when the vector has another dimension than the index's.
                   EngineUnavailableError, when the index is closed or doesn't answer in time.
        """
        shape = self._engine.shape
        if vector.shape != (shape.dimension,):
            raise EngineMismatchError(
                f"a query of shape {vector.shape} on an index of {shape.dimension} dimensions "
                f"of {shape.model}"
            )
        length = float(np.linalg.norm(vector))
        if limit < 1 or not 0 < length < np.inf:  # what has no direction is near to nothing
            return []
        found = self._engine.nearest(vector / length, seen(visible), limit, timeout)
        hits = [Hit(mid, rev_of(held), min(1.0, max(-1.0, score))) for mid, held, score in found]
        return sorted(hits, key=lambda hit: (-hit.score, hit.memory_id))
