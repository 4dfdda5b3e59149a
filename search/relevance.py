"""Whether a record answers the query at all: one number that means the same everywhere."""

from collections.abc import Iterable, Sequence

from projectors.keyword.relevance import coverage
from search.fusion import vector_share


def relevance(
    query_terms: Sequence[str],
    text_terms: Iterable[str],
    *,
    cosine: float | None,
    unrelated: float,
) -> float:
    """Return the better of two proofs: shared meaning, or shared words.

    Guarantee: depends on the query and this record alone, so a threshold means the same for every
               query, scope and size of store. All informative words of the query in the record
               give 1, whatever the meaning says.
    """
    meaning = vector_share(cosine, unrelated) if cosine is not None else 0.0
    return max(meaning, coverage(query_terms, text_terms))
