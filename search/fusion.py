"""How the legs' scores become one: each leg's range over the union becomes [0, 1], then a mean.

Source: docs/adr/0009-score-fusion.md, with the alternatives and their figures.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from canonical.domain.values import value_object
from projectors.keyword.relevance import Statistics


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each leg counts. Source: measured, docs/adr/0009-score-fusion.md."""

    keyword: float = 0.75
    vector: float = 0.25
    entity: float = 0.05

    @property
    def whole(self) -> float:
        """Return what a record scores that is the best of every leg."""
        return self.keyword + self.vector + self.entity


@value_object
class Shares:
    """Where a record stands in each leg's range, in [0, 1]; 0 where the leg doesn't have it."""

    keyword: float = 0.0
    vector: float = 0.0
    entity: float = 0.0


def fuse(shares: Shares, weights: Weights) -> float:
    """Return the score that orders hits, in [0, 1]."""
    return (
        weights.keyword * shares.keyword
        + weights.vector * shares.vector
        + weights.entity * shares.entity
    ) / weights.whole


@dataclass(frozen=True, slots=True)
class Scale:
    """A leg's range for one query."""

    low: float
    high: float

    def share(self, raw: float | None) -> float:
        """Return where a raw score stands, in [0, 1]; an engine's NaN or infinity is nothing."""
        if raw is None or not self.low < raw < math.inf or self.high <= self.low:
            return 0.0
        return 1.0 if raw >= self.high else (raw - self.low) / (self.high - self.low)


def keyword_scale(raws: Iterable[float], *, cut: bool, most: float) -> Scale:
    """Return the range of BM25.

    raws: of live candidates that the leg ranked. cut: the leg had more, so what it doesn't name
    may come close to its last; otherwise it has no word of the query. most: what the query could
    reach; a best hit far below it is not stretched to 1.
    """
    known = _finite(raws)
    low = min(known, default=0.0) if cut else 0.0
    return Scale(low, max(max(known, default=0.0), most / 2))


def vector_scale(raws: Iterable[float], *, cut: bool, unrelated: float) -> Scale:
    """Return the range of the cosine; as for BM25, with `unrelated` in place of no word at all."""
    known = _finite(raws)
    low = min(known, default=unrelated)
    quarter = unrelated + (1.0 - unrelated) / 4
    return Scale(low if cut else min(low, unrelated), max(max(known, default=-1.0), quarter))


def _finite(raws: Iterable[float]) -> Sequence[float]:
    return [raw for raw in raws if math.isfinite(raw)]


def weight_of(query_terms: Iterable[str], statistics: Statistics) -> float:
    """Return what BM25 gives a record of middling length that has each term of the query once."""
    return sum(statistics.idf(term) for term in dict.fromkeys(query_terms))
