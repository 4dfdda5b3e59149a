"""Whether a record answers the query at all: one number that means the same everywhere."""

from collections.abc import Iterable, Sequence

from projectors.keyword.relevance import coverage


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
    return max(meaning(cosine, unrelated), coverage(query_terms, text_terms))


def meaning(cosine: float | None, unrelated: float) -> float:
    """Return how far a cosine lies above what unrelated texts reach, as a share of the way to 1."""
    if cosine is None or not cosine > unrelated:  # also what an engine says as NaN
        return 0.0
    return min((cosine - unrelated) / (1.0 - unrelated), 1.0)
