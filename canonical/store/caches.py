"""What models said of texts before: kept per tenant, so that a rebuild costs no model calls.

Keyed by the SHA-256 of the exact text. An entry is made only while its record still holds a text,
under the record's lock, so that an erase either sees the entry or stops it.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg.types.json import Jsonb

from canonical.domain.records import Record
from canonical.store.arrays import blobs, texts
from canonical.store.database import Database
from canonical.store.statements import for_driver, named

TextKey = tuple[str, bytes]  # tenant, SHA-256 of the exact text
FoundNames = tuple[tuple[str, str], ...]  # (name, label), in order of appearance


def text_key(record: Record) -> TextKey:
    """Return the key of a record's text."""
    return record.scope.tenant, hashlib.sha256(record.text.encode()).digest()


def _asked(keys: Collection[TextKey]) -> dict[str, str]:
    tenants, hashes = zip(*keys, strict=True) if keys else ((), ())
    return {"tenants": texts(tenants), "hashes": blobs(hashes)}


class CacheRow(Protocol):
    """A vector to be kept on behalf of a memory."""

    @property
    def memory_id(self) -> UUID:
        """Return the memory, which must still hold the text."""
        ...

    @property
    def tenant(self) -> str:
        """Return its tenant."""
        ...

    @property
    def text_hash(self) -> bytes:
        """Return the SHA-256 of its exact text."""
        ...

    @property
    def vector(self) -> NDArray[np.float32]:
        """Return the text's vector."""
        ...


class NoEmbeddingCache:
    """For a model that runs in this process faster than a row is read."""

    def get(self, _keys: Sequence[TextKey]) -> dict[TextKey, NDArray[np.float32]]:
        """Know nothing."""
        return {}

    def put(self, _rows: Sequence[CacheRow]) -> None:
        """Keep nothing."""


class EmbeddingCache:
    """Vectors of one model. `database` serves as the projector."""

    def __init__(self, database: Database, model: str) -> None:
        """Nothing is read yet."""
        self._database, self._model = database, model

    def get(self, keys: Sequence[TextKey]) -> dict[TextKey, NDArray[np.float32]]:
        """Return the vectors that are kept."""
        parameters = {"model": self._model, **_asked(keys)}
        (found,) = self._database.read((for_driver("cached_embeddings"), parameters))
        return {
            (row["tenant"], row["text_hash"]): np.frombuffer(row["vector"], dtype="<f4")
            for row in found
        }

    def put(self, rows: Sequence[CacheRow]) -> None:
        """Keep vectors; not on behalf of memories that were deleted or erased meanwhile."""
        parameters = {
            "model": self._model,
            "ids": [row.memory_id for row in rows],
            "tenants": [row.tenant for row in rows],
            "hashes": [row.text_hash for row in rows],
            "vectors": [row.vector.astype("<f4").tobytes() for row in rows],
        }
        with self._database.transaction() as conn:
            conn.execute(named("cache_embeddings"), parameters)


class NameCache:
    """Names that a recogniser found. `database` serves as the projector."""

    def __init__(self, database: Database) -> None:
        """Nothing is read yet."""
        self._database = database

    def get(self, model: str, records: Sequence[Record]) -> Mapping[UUID, FoundNames]:
        """Return the names kept for the records' texts, by memory id; absent: not known."""
        keys = {record.id: text_key(record) for record in records}
        parameters = {"model": model, **_asked(keys.values())}
        (found,) = self._database.read((for_driver("cached_names"), parameters))
        known = {(row["tenant"], row["text_hash"]): row["names"] for row in found}
        return {
            memory_id: tuple([(text, label) for text, label in known[key]])
            for memory_id, key in keys.items()
            if key in known
        }

    def put(self, model: str, found: Sequence[tuple[Record, Sequence[tuple[str, str]]]]) -> None:
        """Keep names for the texts of those records that still live."""
        keys = [text_key(record) for record, _ in found]
        parameters = {
            "model": model,
            "ids": [record.id for record, _ in found],
            "tenants": [tenant for tenant, _ in keys],
            "hashes": [text_hash for _, text_hash in keys],
            "names": [Jsonb([list(name) for name in names]) for _, names in found],
        }
        with self._database.transaction() as conn:
            conn.execute(named("cache_names"), parameters)
