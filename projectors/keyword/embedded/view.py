"""A search on one commit of the tantivy index."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tantivy import DocAddress

from canonical.domain.records import EPOCH_SHIFT
from projectors.keyword import schema
from projectors.keyword.embedded.documents import ID_HIGH, ID_LOW
from projectors.keyword.embedded.failures import in_our_terms
from projectors.keyword.embedded.queries import Queries
from projectors.keyword.embedded.snapshot import Snapshot
from projectors.keyword.mapping import tag
from projectors.keyword.port import Question
from projectors.keyword.relevance import Statistics
from projectors.protocol import Hit

_REV = (1 << EPOCH_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class EmbeddedView:
    """One tenant's documents in one commit; the interpreter's lock is not held meanwhile.

    A call within the process can't be broken off, so there is no time-out.
    """

    snapshot: Snapshot
    queries: Queries
    directory: Path
    tenant: str

    def statistics(self, terms: Iterable[str]) -> Statistics:
        """Return how rare terms are among the tenant's documents."""
        with in_our_terms(self.directory, "statistics"):
            searcher, prefix = self.snapshot.searcher, tag(self.tenant)
            n_docs = searcher.doc_freq(schema.TENANT, self.tenant)
            df = {t: searcher.doc_freq(schema.BODY, prefix + t) for t in dict.fromkeys(terms)}
            return Statistics(n_docs, df, self.snapshot.avg_len, collection=self.snapshot.n_docs)

    def search(self, question: Question) -> list[Hit]:
        """Return the memories that hold some of the terms, best first; score is BM25."""
        with in_our_terms(self.directory, "search"):
            prefix = tag(self.tenant)
            weights = {prefix + term: boost for term, boost in question.boosts.items()}
            query = self.queries.best(weights, question.visible)
            found = self.snapshot.searcher.search(query, question.limit, count=False)
            return _hits(self.snapshot, found.hits)


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
