"""Where the vectors of records come from: a cache first, the model for the rest."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from canonical.domain.records import Record
from canonical.domain.values import value_object
from canonical.errors import PoisonError
from inference.protocols import Embedder

BATCH: Final = 256  # texts embedded before they are cached: what a failure can make paid for twice

Key = tuple[str, bytes]  # tenant, SHA-256 of the exact text in UTF-8
Vector = NDArray[np.float32]


@value_object
class CacheRow:
    """A vector to be cached on behalf of a memory, which must still hold that text."""

    memory_id: UUID
    tenant: str
    text_hash: bytes
    vector: Vector


class EmbeddingCache(Protocol):
    """Vectors of one model, kept per tenant and exact text."""

    def get(self, keys: Sequence[Key]) -> Mapping[Key, Vector]:
        """Return the vectors that are there."""
        ...

    def put(self, rows: Sequence[CacheRow]) -> None:
        """Keep vectors, except on behalf of memories that were deleted or erased meanwhile.

        Shapes: a key may occur with several memories, always with the same vector.
        """
        ...


class Vectors(Protocol):
    """Gives records their vectors."""

    def vectors_for(self, records: Sequence[Record]) -> Mapping[UUID, Vector | PoisonError]:
        """Return for each record the vector of its text, or why the model refuses the text.

        Raises: TransientError, when the model or the cache doesn't answer. HaltError.
        """
        ...


class CachedVectors:
    """Asks the model for what the cache doesn't hold.

    Guarantee: equal texts of a tenant are embedded once; a vector never passes from one tenant to
               another, so that no timing and no cache tells a tenant what another one stores.
    """

    def __init__(self, embedder: Embedder, cache: EmbeddingCache) -> None:
        self._embedder, self._cache = embedder, cache

    def vectors_for(self, records: Sequence[Record]) -> dict[UUID, Vector | PoisonError]:
        """Return for each record the vector of its text, or why the model refuses the text.

        Raises: ModelUnavailableError, StoreUnavailableError: what was embedded before is cached.
        """
        keys = {record.id: _key(record) for record in records}
        found: dict[Key, Vector | PoisonError] = dict(
            self._cache.get(list(dict.fromkeys(keys.values())))
        )
        missing: dict[Key, list[Record]] = {}
        for record in records:
            if keys[record.id] not in found:
                missing.setdefault(keys[record.id], []).append(record)
        todo = list(missing.items())
        for start in range(0, len(todo), BATCH):
            found |= self._embedded(todo[start : start + BATCH])
        return {record.id: found[keys[record.id]] for record in records}

    def _embedded(
        self, batch: Sequence[tuple[Key, Sequence[Record]]]
    ) -> dict[Key, Vector | PoisonError]:
        answers = self._embedder.embed([holders[0].text for _, holders in batch])
        rows = [
            CacheRow(record.id, *key, answer)
            for (key, holders), answer in zip(batch, answers, strict=True)
            if not isinstance(answer, PoisonError)
            for record in holders
        ]
        if rows:
            self._cache.put(rows)
        return {key: answer for (key, _), answer in zip(batch, answers, strict=True)}


def _key(record: Record) -> Key:
    return record.scope.tenant, sha256(record.text.encode()).digest()
