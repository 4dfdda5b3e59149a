"""The trace of a write, in its events: each command's own, and none where there is none."""

from collections.abc import Callable

import pytest

from canonical import tracing
from canonical.domain.commands import Change
from canonical.domain.scope import Scope
from canonical.mutations import add, bulk, change
from canonical.mutations.bulk import Chunk
from canonical.mutations.writer import Writer
from tests.support.builders import TENANT, Store, new
from tests.support.tracing import recorded

Command = Callable[[Writer], object]

SCOPE = Scope(TENANT, user_id="alice")
COMMANDS: dict[str, Command] = {
    "add": lambda w: add.add(w, new("a")),
    "bulk": lambda w: bulk.add_chunk(w, Chunk([(0, new("a")), (1, new("b"))])),
    "update": lambda w: change.update(w, add.add(w, new("a")).memory_id, Change(text="b")),
    "delete": lambda w: change.delete(w, add.add(w, new("a")).memory_id),
    "supersede": lambda w: change.supersede(w, add.add(w, new("a")).memory_id, new("b")),
    "delete scope": lambda w: (add.add(w, new("a")), change.delete_scope(w, SCOPE)),
}


def kept(store: Store) -> set[str | None]:
    return {row["trace"] for row in store.query("SELECT trace FROM outbox")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_event_of_a_traced_command_keeps_its_trace(store: Store, name: str) -> None:
    with recorded(), tracing.span("write"):
        COMMANDS[name](store.writer())
        assert kept(store) == {tracing.traceparent()}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_without_a_trace_keeps_none_on_a_connection_that_had_one(
    store: Store, name: str
) -> None:
    writer = store.writer()
    with recorded(), tracing.span("write"):
        add.add(writer, new("traced"))
    store.query("UPDATE outbox SET trace = NULL")
    COMMANDS[name](writer)
    assert kept(store) == {None}
