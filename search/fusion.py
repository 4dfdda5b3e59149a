"""How the legs' scores become one: each on a scale of its own that is the same for every query.

A share is what a leg gives of the most it could give: BM25 of the query's whole weight, the cosine
of the room above what unrelated texts reach. So neither other candidates nor dead ones move a
record's score. Source: docs/adr/0009-score-fusion.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from projectors.keyword.relevance import K1, Statistics


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each share counts. Source: measured, docs/adr/0009-score-fusion.md."""

    keyword: float = 1.0
    vector: float = 0.10
    entity: float = 0.05

    @property
    def whole(self) -> float:
        """Return what a record scores that has all of every leg."""
        return self.keyword + self.vector + self.entity


@dataclass(frozen=True, slots=True)
class Shares:
    """What each leg gives of the most it could give, in [0, 1]; 0 when it gives nothing."""

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


def most_bm25(query_terms: Iterable[str], statistics: Statistics) -> float:
    """Return what BM25 nears for an endless repetition of all that is asked for."""
    return (K1 + 1) * sum(statistics.idf(term) for term in dict.fromkeys(query_terms))


def keyword_share(bm25: float, most: float) -> float:
    """Return BM25 as a share of the most it could be."""
    return _share(bm25 / most) if most > 0 else 0.0


def vector_share(cosine: float, unrelated: float) -> float:
    """Return how far a cosine lies above what unrelated texts reach, as a share of the way to 1."""
    return _share((cosine - unrelated) / (1.0 - unrelated))


def entity_share(boost: float) -> float:
    """Return an entity's boost, kept within its bounds."""
    return _share(boost)


def _share(value: float) -> float:
    """Keep a share in [0, 1]; an engine's NaN counts as nothing."""
    return min(value, 1.0) if value > 0.0 else 0.0
