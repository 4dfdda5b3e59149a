"""What names mean for the tables, without a database."""

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from canonical.domain.records import Status
from canonical.domain.scope import Scope
from projectors.entity import mapping
from projectors.entity.mapping import Entity, EntityId, Held, MemoryId, Wanted
from tests.support.builders import ALICE, TENANT, record

ANYONE = st.none() | st.text("abc,\"[]' ", max_size=4)
SCOPES = st.builds(Scope, st.text("abc,", min_size=1, max_size=3), ANYONE, ANYONE, ANYONE)
NAMES = st.text("abc ,\"[]'", max_size=6)


def test_spellings_of_one_name_are_one_entity_with_the_first_form_shown() -> None:
    """O-16."""
    found = [("Acme", "ORG"), (" ACME ", "PERSON"), ("acme's", "ORG"), ("42", "ORG")]
    (entity,) = mapping.entities_of(ALICE, found).values()
    assert entity == Entity(entity.id, ALICE, "acme", "Acme", "ORG")


@given(st.tuples(SCOPES, NAMES), st.tuples(SCOPES, NAMES))
def test_ids_are_equal_when_scope_and_name_are(
    one: tuple[Scope, str], other: tuple[Scope, str]
) -> None:
    """S-16: also where ids hold what separates them elsewhere."""
    assert (mapping.entity_id(*one) == mapping.entity_id(*other)) == (one == other)


def test_ids_never_change() -> None:
    """Another process, and the next release, must find the same entity."""
    scope = Scope("t1", user_id="alice", run_id="r")
    assert mapping.entity_id(scope, "mara lind") == "4d153e3ce2fc5cbdaa672bb5dacadec8"


def test_a_record_that_is_gone_names_nothing() -> None:
    for status in Status:
        found = mapping.wanted(record(status=status), [("Mara", "PERSON")], 3)
        assert bool(found.entities) == status.is_live
        assert found.shard == 3


def test_a_name_is_found_whole_or_by_its_words() -> None:
    assert mapping.keys_of("acme") == [("acme", 1.0)]
    assert mapping.keys_of("mara lind") == [("mara lind", 1.0), ("mara", 0.4), ("lind", 0.4)]


ENTITY_IDS = st.sampled_from([EntityId(c * 32) for c in "abcde"])


@st.composite
def pages(draw: st.DrawFn) -> tuple[list[Wanted], list[Held]]:
    wanted, held = [], []
    for n in range(draw(st.integers(0, 4))):
        memory_id = MemoryId(UUID(int=n).hex)
        rev = draw(st.integers(1, 3))
        entities = {id_: Entity(id_, ALICE, id_, id_, "ORG") for id_ in draw(st.sets(ENTITY_IDS))}
        wanted.append(Wanted(TENANT, memory_id, n % 2, rev, entities))
        held_rev = draw(st.integers(1, 3))
        held += [Held(memory_id, id_, held_rev) for id_ in draw(st.sets(ENTITY_IDS))]
    return wanted, held


@given(pages())
def test_the_changes_turn_what_is_held_into_what_is_wanted(
    page: tuple[list[Wanted], list[Held]],
) -> None:
    wanted, held = page
    changes = mapping.changes(wanted, held)
    links = {(h.memory_id, h.entity_id): h.rev for h in held}
    newest = {h.memory_id: h.rev for h in held}
    for link in changes.removed:
        del links[link.memory_id, link.entity_id]
    for link in changes.added:
        assert (link.memory_id, link.entity_id) not in links
        links[link.memory_id, link.entity_id] = link.rev
    for link in changes.raised:
        assert links[link.memory_id, link.entity_id] < link.rev
        links[link.memory_id, link.entity_id] = link.rev
    for memory in wanted:
        after = {
            id_: rev for (memory_id, id_), rev in links.items() if memory_id == memory.memory_id
        }
        if newest.get(memory.memory_id, 0) > memory.rev:
            assert set(after.values()) == {newest[memory.memory_id]}, "newer: left alone"
        else:
            assert after.keys() == memory.entities.keys()
            assert set(after.values()) <= {memory.rev}
    again = mapping.changes(wanted, [Held(*place, rev) for place, rev in links.items()])
    assert again == mapping.Changes(), "applied twice, nothing is left to do"


@given(pages())
def test_degrees_follow_the_links(page: tuple[list[Wanted], list[Held]]) -> None:
    changes = mapping.changes(*page)
    by = Counter[tuple[str, int]]()
    by.update((link.entity_id, link.shard) for link in changes.added)
    by.subtract((link.entity_id, link.shard) for link in changes.removed)
    steps = mapping.steps(changes)
    assert {(s.entity_id, s.shard): s.by for s in steps} == {k: n for k, n in by.items() if n}
    assert steps == sorted(steps)
