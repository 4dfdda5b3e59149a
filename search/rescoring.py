"""Scoring canonical texts that an index doesn't hold at their present revision, on its scale."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from uuid import UUID

import numpy as np

from canonical.domain.records import Record
from canonical.errors import PoisonError
from inference.protocols import Embedder
from projectors.keyword import analysis
from projectors.keyword.relevance import Statistics, bm25
from search.answer import EntityFactor
from search.legs import QueryVector, Vector

EMBEDDED_TOGETHER = 32  # texts; the budget is looked at between them


class TextTerms:
    """The terms of the records of one search: each text is analysed once, and only if needed."""

    def __init__(self) -> None:
        self._held: dict[UUID, list[str]] = {}

    def of(self, record: Record) -> list[str]:
        """Return the terms of a record's canonical text."""
        if (held := self._held.get(record.id)) is None:
            held = self._held[record.id] = analysis.terms(record.text)
        return held


def statistics_of(query_terms: Sequence[str], texts: Sequence[Sequence[str]]) -> Statistics:
    """Return the statistics of these texts alone, for when the index can't be asked."""
    asked = set(query_terms)
    df = Counter(term for text in texts for term in asked & set(text))
    length = sum(map(len, texts)) / max(len(texts), 1)
    return Statistics(len(texts), df, max(length, 1.0))


def bm25_of(
    query_terms: Sequence[str], texts: Mapping[UUID, Sequence[str]], statistics: Statistics
) -> dict[UUID, float]:
    """Return what the keyword leg would say of each text, where a word meets."""
    scores = {memory_id: bm25(query_terms, text, statistics) for memory_id, text in texts.items()}
    return {memory_id: score for memory_id, score in scores.items() if score > 0}


def cosines_within(
    budget: timedelta,
    pool: Executor,
    vector: QueryVector,
    embedder: Embedder,
    texts: Mapping[UUID, str],
) -> dict[UUID, float]:
    """Return what the vector leg would say of each text, of as many as fit into the budget.

    Guarantee: never raises for a model's sake and is back in time; what is missing was not made,
               because the model failed, refused the text, or the time was over.
    """
    deadline = time.monotonic() + budget.total_seconds()
    made: dict[UUID, float] = {}
    future = pool.submit(_embed, deadline, vector, embedder, texts, made)
    try:
        future.exception(budget.total_seconds())
    except TimeoutError:
        future.cancel()
    return dict(made)  # a copy: the thread may still be adding


def _embed(
    deadline: float,
    query: QueryVector,
    embedder: Embedder,
    texts: Mapping[UUID, str],
    made: dict[UUID, float],
) -> None:
    wanted = query.get()
    ids = list(texts)
    for start in range(0, len(ids), EMBEDDED_TOGETHER):
        if time.monotonic() >= deadline:
            return
        some = ids[start : start + EMBEDDED_TOGETHER]
        vectors = embedder.embed([texts[memory_id] for memory_id in some])
        for memory_id, vector in zip(some, vectors, strict=True):
            if not isinstance(vector, PoisonError):
                made[memory_id] = _cosine(wanted, vector)


def _cosine(one: Vector, other: Vector) -> float:
    return float(np.dot(one, other))


def named_in(
    text_terms: Sequence[str], factors: Sequence[tuple[Sequence[str], EntityFactor]]
) -> EntityFactor | None:
    """Return the name with the highest boost among those whose words stand together in the text."""
    found = [factor for words, factor in factors if _contains(text_terms, words)]
    return max(found, key=lambda factor: factor.boost, default=None)


def _contains(text: Sequence[str], words: Sequence[str]) -> bool:
    size = len(words)
    if not size:
        return False
    first = words[0]
    return any(
        term == first and list(text[at : at + size]) == list(words) for at, term in enumerate(text)
    )
