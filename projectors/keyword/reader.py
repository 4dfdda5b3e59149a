"""Search by words, on whichever engine holds the index."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from canonical.domain.visibility import Visible
from projectors.keyword.port import KeywordEngine, Question
from projectors.keyword.relevance import Statistics, idf
from projectors.protocol import Hit

MAX_TERMS = 64  # asked of the index at once, the rarest; bounds what one search may cost
STATISTICS_TIMEOUT = timedelta(seconds=5)


class KeywordIndexReader:
    """The reading side of the keyword projection; any number of threads."""

    def __init__(self, engine: KeywordEngine) -> None:
        self._engine = engine

    def best(
        self, terms: Sequence[str], *, visible: Visible, limit: int, timeout: timedelta
    ) -> list[Hit]:
        """Return the memories that hold some of `terms`, best first; score is BM25.

        Guarantee: exactly what `visible` lets through, as of the last page. Words weigh by how
                   rare they are within the tenant. Nothing in `terms` is read as syntax.
        Cost:      bounded by `MAX_TERMS`.
        Raises:    EngineUnavailableError, when the index doesn't answer. EngineMismatchError, when
                   it is lost or damaged.
        """
        view = self._engine.view(visible.scope.tenant, timeout=timeout)
        boosts = boosts_of(view.statistics(terms))
        if not boosts or limit < 1:
            return []
        return view.search(Question(visible, boosts, limit))

    def statistics(self, terms: Iterable[str], *, tenant: str) -> Statistics:
        """Return what is needed to score other texts of a tenant on the scale of `best`."""
        return self._engine.view(tenant, timeout=STATISTICS_TIMEOUT).statistics(terms)


def boosts_of(known: Statistics) -> Mapping[str, float]:
    """Return the rarest terms that the tenant has, each with what turns its weight into ours.

    An engine weighs a term by its rarity among all documents of the index; within a tenant it may
    be common, and what other tenants write is no business of this one's scores.
    """
    found = sorted(((df, term) for term, df in known.df.items() if df), key=lambda d: d[0])
    return {term: known.idf(term) / idf(known.collection, df) for df, term in found[:MAX_TERMS]}
