"""Which texts the model is asked for, and what is cached."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import numpy as np
import pytest

from canonical.domain.records import Record
from canonical.domain.scope import Scope
from canonical.errors import ModelRefusedError, ModelUnavailableError, PoisonError
from inference.fakes import HashEmbedder
from projectors.vector.vectors import BATCH, CachedVectors, CacheRow, Key, Vector
from tests.support.vector_index import record


class ListCache:
    """What was put and what was asked, in order."""

    def __init__(self) -> None:
        self.rows: list[CacheRow] = []
        self.asked: list[Key] = []

    def get(self, keys: Sequence[Key]) -> Mapping[Key, Vector]:
        self.asked += keys
        held = {(row.tenant, row.text_hash): row.vector for row in self.rows}
        return {key: held[key] for key in keys if key in held}

    def put(self, rows: Sequence[CacheRow]) -> None:
        self.rows += rows


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder(16)


@pytest.fixture
def cache() -> ListCache:
    return ListCache()


@pytest.fixture
def vectors(embedder: HashEmbedder, cache: ListCache) -> CachedVectors:
    return CachedVectors(embedder, cache)


def of(tenant: str, *texts: str) -> list[Record]:
    return [record(text, Scope(tenant, user_id="u")) for text in texts]


def assert_right(found: Mapping[UUID, Vector | PoisonError], records: list[Record]) -> None:
    assert set(found) == {r.id for r in records}
    for made in records:
        (expected,) = HashEmbedder(16).embed([made.text])
        np.testing.assert_array_equal(np.asarray(found[made.id]), np.asarray(expected))


def test_equal_texts_of_a_tenant_are_embedded_once_and_cached_for_each_memory(
    vectors: CachedVectors, embedder: HashEmbedder, cache: ListCache
) -> None:
    records = of("t", "tea", "coffee", "tea")
    assert_right(vectors.vectors_for(records), records)
    assert embedder.embedded == ["tea", "coffee"]
    assert {row.memory_id for row in cache.rows} == {r.id for r in records}
    assert len(cache.asked) == 2


def test_a_cached_text_is_not_embedded_again(
    vectors: CachedVectors, embedder: HashEmbedder
) -> None:
    """P8: a rebuild costs no model calls, also with the model down."""
    vectors.vectors_for(of("t", "tea"))
    embedder.down = True
    records = of("t", "tea", "tea")
    assert_right(vectors.vectors_for(records), records)


def test_a_text_that_differs_in_one_character_is_another(
    vectors: CachedVectors, embedder: HashEmbedder
) -> None:
    """The key is the exact text: no case folding, no normal form, no trimming."""
    texts = ["tea", "Tea", "tea ", "caf\u00e9", "cafe\u0301"]
    vectors.vectors_for(of("t", *texts))
    assert embedder.embedded == texts


def test_tenants_share_nothing(vectors: CachedVectors, embedder: HashEmbedder) -> None:
    """P5: in one page and through the cache."""
    both = of("t", "tea") + of("u", "tea")
    assert_right(vectors.vectors_for(both), both)
    vectors.vectors_for(of("v", "tea"))
    assert embedder.embedded == ["tea"] * 3


def test_a_refusal_is_each_holders_and_is_not_cached(
    vectors: CachedVectors, embedder: HashEmbedder, cache: ListCache
) -> None:
    """E-07, E-09: the others have their vectors, and a redrive asks again."""
    embedder.refuses = lambda text: "walnuts" in text
    records = of("t", "walnuts", "tea", "walnuts")
    found = vectors.vectors_for(records)
    refused = [isinstance(found[r.id], ModelRefusedError) for r in records]
    assert refused == [True, False, True]
    assert [row.memory_id for row in cache.rows] == [records[1].id]
    embedder.refuses = lambda _text: False
    assert_right(vectors.vectors_for(records), records)


def test_what_was_embedded_before_the_model_went_down_is_kept(
    vectors: CachedVectors, embedder: HashEmbedder, cache: ListCache
) -> None:
    records = of("t", *(f"text {n}" for n in range(BATCH + 1)))

    def die_at_the_last(text: str) -> bool:
        if text == f"text {BATCH}":
            raise ModelUnavailableError("gone")
        return False

    embedder.refuses = die_at_the_last
    with pytest.raises(ModelUnavailableError):
        vectors.vectors_for(records)
    assert len(cache.rows) == BATCH
    embedder.refuses, embedder.embedded = (lambda _text: False), []
    assert_right(vectors.vectors_for(records), records)
    assert embedder.embedded == [f"text {BATCH}"]


def test_nothing_asked_nothing_done(vectors: CachedVectors, embedder: HashEmbedder) -> None:
    assert vectors.vectors_for([]) == {}
    assert embedder.embedded == []
