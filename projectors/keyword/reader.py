"""Search by words on tantivy."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from tantivy import DocAddress

from canonical.domain.records import EPOCH_SHIFT
from canonical.domain.visibility import Visible
from projectors.keyword import schema
from projectors.keyword.documents import ID_HIGH, ID_LOW
from projectors.keyword.engine import KeywordEngine
from projectors.keyword.failures import in_our_terms
from projectors.keyword.mapping import tag
from projectors.keyword.queries import Queries
from projectors.keyword.relevance import Statistics, idf
from projectors.keyword.snapshot import Snapshot
from projectors.protocol import Hit

MAX_TERMS = 64  # asked of the index at once, the rarest; bounds what one search may cost
_REV = (1 << EPOCH_SHIFT) - 1


class TantivyKeywordReader:
    """The reading side of the keyword projection in this process; any number of threads."""

    def __init__(self, engine: KeywordEngine) -> None:
        self._engine = engine
        self._queries = Queries(engine.schema)

    def best(
        self,
        terms: Sequence[str],
        *,
        visible: Visible,
        limit: int,
        timeout: timedelta,  # noqa: ARG002 - a call within the process can't be broken off
    ) -> list[Hit]:
        """Return the memories that hold some of `terms`, best first; score is BM25.

        Guarantee: exactly what `visible` lets through, as of the last commit. Words weigh by how
                   rare they are within the tenant. Nothing in `terms` is read as syntax.
        Cost:      bounded by `MAX_TERMS`; the interpreter's lock is not held meanwhile.
        Raises:    EngineUnavailableError, when the index is closed. EngineMismatchError, when it
                   is damaged.
        """
        with in_our_terms(self._engine.directory, "search"):
            snapshot = self._engine.snapshot()
            weights = self._weights(snapshot, terms, visible.scope.tenant)
            if not weights or limit < 1:
                return []
            query = self._queries.best(weights, visible)
            return _hits(snapshot, snapshot.searcher.search(query, limit, count=False).hits)

    def statistics(self, terms: Iterable[str], *, tenant: str) -> Statistics:
        """Return what is needed to score other texts of a tenant on the scale of `best`."""
        with in_our_terms(self._engine.directory, "statistics"):
            return _statistics(self._engine.snapshot(), terms, tenant)

    def _weights(self, snapshot: Snapshot, terms: Iterable[str], tenant: str) -> dict[str, float]:
        """Return the body terms to ask for, each with what turns tantivy's weight into ours.

        tantivy weighs a term by its rarity among all documents of the index; within a tenant it
        may be common, and what other tenants write is no business of this one's scores.
        """
        known = _statistics(snapshot, terms, tenant)
        found = sorted(((df, term) for term, df in known.df.items() if df), key=lambda d: d[0])
        prefix = tag(tenant)
        return {
            prefix + term: known.idf(term) / idf(snapshot.n_docs, df)
            for df, term in found[:MAX_TERMS]
        }


def _statistics(snapshot: Snapshot, terms: Iterable[str], tenant: str) -> Statistics:
    searcher, prefix = snapshot.searcher, tag(tenant)
    n_docs = searcher.doc_freq(schema.TENANT, tenant)
    df = {term: searcher.doc_freq(schema.BODY, prefix + term) for term in dict.fromkeys(terms)}
    return Statistics(n_docs, df, snapshot.avg_len)


def _hits(snapshot: Snapshot, found: Sequence[tuple[float, DocAddress]]) -> list[Hit]:
    if not found:
        return []
    places = [place for _, place in found]
    high, low, held = (
        snapshot.searcher.fast_field_values(name, places)
        for name in (ID_HIGH, ID_LOW, schema.GUARD)
    )
    return [
        Hit(UUID(int=int(h or 0) << 64 | int(w or 0)), int(g or 0) & _REV, score)
        for (score, _), h, w, g in zip(found, high, low, held, strict=True)
    ]
