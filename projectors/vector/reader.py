"""Search by meaning on Qdrant Edge."""

from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from canonical.domain.visibility import Visible
from canonical.errors import EngineMismatchError
from projectors.protocol import Hit
from projectors.vector.edge_filters import edge_filter
from projectors.vector.engine import VectorEngine
from projectors.vector.mapping import rev_of
from projectors.vector.predicates import seen


class EdgeVectorReader:
    """The reading side of the vector projection in this process; any number of threads."""

    def __init__(self, engine: VectorEngine) -> None:
        self._engine = engine

    def nearest(
        self,
        vector: NDArray[np.float32],
        *,
        visible: Visible,
        limit: int,
        timeout: timedelta,  # noqa: ARG002 - a call within the process can't be broken off
    ) -> list[Hit]:
        """Return the memories nearest to `vector`, best first; score is the cosine.

        Guarantee: exact: what `visible` lets through, all of it considered, none of the rest.
        Cost:      grows with the records in the scope: 1 ms for 100, 4 for 1,000, 100 for 100,000.
        Raises:    EngineMismatchError, when the vector has another dimension than the index's.
                   EngineUnavailableError, when the index is closed.
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
        found = self._engine.nearest(vector / length, edge_filter(seen(visible)), limit)
        hits = [Hit(mid, rev_of(held), min(1.0, max(-1.0, score))) for mid, held, score in found]
        return sorted(hits, key=lambda hit: (-hit.score, hit.memory_id))
