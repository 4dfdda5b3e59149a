"""What models made of texts, kept in Postgres: never on behalf of a record that is gone."""

import threading
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest

from canonical.domain.records import Record
from canonical.store.caches import EmbeddingCache, NameCache, text_key
from canonical.store.database import Database, Role
from canonical.store.reading import CanonicalReader
from projectors.vector.vectors import CacheRow
from tests.support.builders import until
from tests.support.casting import TENANT, Casting

VECTOR = np.arange(4, dtype=np.float32)


class Cached(Casting):
    """Records, and either cache behind the same three words."""

    def __init__(self, open_database: Callable[[Role], Database], kind: str) -> None:
        super().__init__(open_database, "vector")
        self.kind = kind
        self.vectors, self.names = (
            EmbeddingCache(self.projector, "model-1"),
            NameCache(self.projector),
        )

    def record(self, memory_id: UUID, tenant: str = TENANT) -> Record:
        return CanonicalReader(self.api).get(tenant, memory_id)

    def put(self, *records: Record) -> None:
        if self.kind == "vector":
            self.vectors.put([CacheRow(r.id, *text_key(r), VECTOR) for r in records])
        else:
            self.names.put("model-1", [(r, [("Mara Lind", "PERSON")]) for r in records])

    def holds(self, record: Record) -> bool:
        if self.kind == "vector":
            found = self.vectors.get([text_key(record)])
            assert all(np.array_equal(held, VECTOR) for held in found.values())
            return bool(found)
        return self.names.get("model-1", [record]) == {record.id: (("Mara Lind", "PERSON"),)}


@pytest.fixture(params=["vector", "names"])
def cached(request: pytest.FixtureRequest, open_database: Callable[[Role], Database]) -> Cached:
    return Cached(open_database, request.param)


def test_what_is_kept_is_found_by_its_tenant_and_exact_text(cached: Cached) -> None:
    """S-16: nothing of it passes to another tenant."""
    mine = cached.record(cached.add("Mara Lind swims"))
    theirs = cached.record(cached.add("Mara Lind swims", tenant="t2"), "t2")
    cached.put(mine)
    assert cached.holds(mine)
    assert not cached.holds(theirs)
    assert not cached.holds(replace(mine, text="Mara Lind swims "))
    cached.put(mine, replace(mine))
    assert cached.holds(mine)


def test_a_late_step_keeps_nothing_of_a_record_that_is_gone(cached: Cached) -> None:
    """O-06: the model answered, the record was deleted, then the answer is to be kept."""
    gone, stays = (cached.record(cached.add(said)) for said in ("Mara Lind swims", "Ben bakes"))
    cached.delete(gone.id)
    cached.put(gone, stays)
    assert not cached.holds(gone)
    assert cached.holds(stays)


def test_a_step_that_meets_the_delete_waits_for_it(cached: Cached) -> None:
    """O-06: of a record that is being deleted nothing is kept, whichever came first."""
    record = cached.record(cached.add("Mara Lind swims"))
    with cached.owner.transaction() as conn:
        late = threading.Thread(target=cached.put, args=(record,))
        conn.exec_driver_sql("UPDATE memory SET status = 'deleted', deleted_at = now()")
        late.start()
        until(cached.waits_for_lock, "the late step to wait for the delete")
    late.join(20)
    assert not late.is_alive()
    assert not cached.holds(record)
