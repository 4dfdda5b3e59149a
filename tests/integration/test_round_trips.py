"""How often one command waits for Postgres: each wait wakes up two processes."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.abc import PQGen

from canonical.domain.commands import Change
from canonical.mutations.add import add
from canonical.mutations.change import delete, supersede, update
from canonical.mutations.writer import Writer
from canonical.store.reading import CanonicalReader
from tests.support.builders import TENANT, Store, key, new


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grow by one with each call in which the driver waits for its socket."""
    found: list[None] = []
    wait = psycopg.Connection.wait

    def noted(gen: PQGen[Any]) -> PQGen[Any]:
        try:
            asked = next(gen)
            found.append(None)
            while True:
                asked = gen.send((yield asked))
        except StopIteration as done:
            return done.value

    def counted(self: psycopg.Connection, gen: PQGen[Any], *args: Any, **given: Any) -> Any:
        return wait(self, noted(gen), *args, **given)

    monkeypatch.setattr(psycopg.Connection, "wait", counted)
    return found


def the_add(writer: Writer) -> Callable[[], object]:
    add(writer, new("likes tea"))  # connects
    return lambda: add(writer, new("likes tea"), key("m", "add", "tea"))


def the_update(writer: Writer) -> Callable[[], object]:
    one = add(writer, new("likes tea"))
    change = Change(text="likes mate")
    return lambda: update(writer, one.memory_id, change, key("m", "update", "x"))


def the_delete(writer: Writer) -> Callable[[], object]:
    one = add(writer, new("likes tea"))
    return lambda: delete(writer, one.memory_id, key("m", "delete", "x"))


def the_supersede(writer: Writer) -> Callable[[], object]:
    one = add(writer, new("likes tea"))
    return lambda: supersede(writer, one.memory_id, new("likes mate"), key("m", "supersede", "x"))


def the_read(writer: Writer) -> Callable[[], object]:
    one = add(writer, new("likes tea"))
    return lambda: CanonicalReader(writer.database).get(TENANT, one.memory_id)


@pytest.mark.parametrize(
    ("made", "trips"),
    [(the_add, 1), (the_update, 2), (the_delete, 2), (the_supersede, 2), (the_read, 1)],
)
def test_a_command_waits_for_postgres_as_often_as_it_must(
    store: Store, waits: list[None], made: Callable[[Writer], Callable[[], object]], trips: int
) -> None:
    """One decides nothing on the way; a change decides once, on the record that it has locked."""
    command = made(store.writer())
    waits.clear()
    command()
    assert len(waits) == trips
