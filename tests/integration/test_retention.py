"""What is forgotten by time: in portions, the oldest first, and nothing that is still needed."""

from collections.abc import Callable

import pytest

from canonical.store import retention
from canonical.store.database import Database, Role
from tests.support.log import Log

FILL = {
    "mutation": "INSERT INTO mutation (tenant, mutation_id, chunk, command, body_hash, memory_ids,"
    " versions, created_at) SELECT 't' || n % 2, n, 0, 'add', 'x', '{}', '{}', ",
    "source_event": "INSERT INTO source_event (tenant, event_id, event_part, memory_id, body_hash,"
    " created_at) SELECT 't' || n % 2, n, 0, gen_random_uuid(), 'x', ",
    "query_event": "INSERT INTO query_event (tenant, query_id, candidates, keep, at)"
    " SELECT 't' || n % 2, gen_random_uuid(), '[]', n > 25, ",
}
AGE = {"mutation": "created_at", "source_event": "created_at", "query_event": "at"}


@pytest.mark.parametrize("table", FILL)
def test_what_is_due_is_forgotten_in_portions(
    open_database: Callable[[Role], Database], table: str
) -> None:
    """One statement for all that is due would run into its time limit, and never get done."""
    log = Log(open_database)
    log.execute(FILL[table] + "now() - n * interval '1 day' FROM generate_series(1, 30) n")

    def purge() -> bool:
        return retention.purge(log.projector, keys_days=5, queries_days=5, bound=8)

    def ages() -> list[int]:
        found = log.execute(
            f"SELECT extract(day FROM now() - {AGE[table]}) FROM {table} ORDER BY 1"
        )
        return [int(str(age)) for (age,) in found]

    kept = list(range(26, 31)) if table == "query_event" else []
    due = list(range(5, 31 - len(kept)))
    while len(due) >= 8:
        assert purge()
        due = due[:-8]
        assert ages() == [1, 2, 3, 4, *due, *kept]
    assert not purge()
    assert ages() == [1, 2, 3, 4, *kept]
