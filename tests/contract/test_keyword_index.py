"""What every keyword index promises, whichever engine holds it."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canonical.domain import filters
from canonical.domain.records import EPOCH_SHIFT, Record, Status, guard
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible, drop_reason
from canonical.errors import EngineRefusedError, InvalidInputError
from projectors.protocol import Mark
from tests.support.keyword_index import (
    NOW,
    SOON,
    Corner,
    KeywordIndex,
    page_of,
    record,
)

TICK = timedelta(microseconds=1)
# An index is made once; every example works in a tenant of its own.
shared = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def index(keyword_index: KeywordIndex) -> KeywordIndex:
    return keyword_index


@pytest.fixture
def corner(index: KeywordIndex) -> Corner:
    return Corner(index)


# Guards


@shared
@given(data=st.data())
def test_the_highest_rev_wins_in_every_order(index: KeywordIndex, data: st.DataObject) -> None:
    """O-04: with repeats, in pages of any size, after each page."""
    corner = Corner(index)
    ids = [uuid4() for _ in range(2)]
    states = [
        record(f"stage{rev}", corner.scope, id=memory_id, rev=rev, version=rev)
        for memory_id in ids
        for rev in range(1, 6)
    ]
    gone = [replace(s, rev=6, version=6, status=Status.DELETED) for s in states if s.rev == 1]
    late = data.draw(st.lists(st.sampled_from(states + gone), max_size=4))
    order = data.draw(st.permutations([*states, *gone, *late]))
    newest: dict[UUID, Record] = {}
    while order:
        size = data.draw(st.integers(1, 6))
        taken, order = order[:size], order[size:]
        page = _newest({}, taken)
        newest = _newest(newest, taken)
        corner.apply(*page.values())
        _holds_exactly(corner, newest)
    assert all(held.rev == 6 for held in newest.values())


def _newest(held: dict[UUID, Record], more: Iterable[Record]) -> dict[UUID, Record]:
    newest = dict(held)
    for r in more:
        newest[r.id] = max(newest.get(r.id, r), r, key=lambda one: one.rev)
    return newest


def _holds_exactly(corner: Corner, newest: dict[UUID, Record]) -> None:
    assert corner.index.guards(newest) == {mid: guard(1, r.rev) for mid, r in newest.items()}
    for rev in range(1, 6):
        expected = {r.id for r in newest.values() if r.rev == rev}
        hits = corner.find(f"stage{rev}")
        assert {hit.memory_id for hit in hits} == expected
        assert all(hit.rev == rev for hit in hits)


def test_a_new_epoch_outranks_every_rev_of_an_older_one(corner: Corner) -> None:
    (held,) = corner.add("from before", rev=900)
    corner.apply(replace(held, text="restored", rev=3), epoch=2)
    corner.apply(replace(held, text="zombie", rev=901), epoch=1)
    assert [hit.rev for hit in corner.find("restored")] == [3]
    assert corner.found("zombie before") == []
    assert corner.index.guards([held.id]) == {held.id: 2 << EPOCH_SHIFT | 3}


@pytest.mark.parametrize("status", [Status.DELETED, Status.ERASED])
def test_a_dead_record_is_not_found_and_stays_dead(corner: Corner, status: Status) -> None:
    """E-02, Q-13: also one that the index never saw alive."""
    (held,) = corner.add("the secret word", metadata={"k": 1})
    never = record("the secret word", corner.scope, rev=5, status=status)
    corner.apply(replace(held, rev=2, status=status), never)
    corner.apply(held, replace(never, rev=4, status=Status.ACTIVE))
    wide: dict[str, Any] = {"include_superseded": True, "show_expired": True}
    assert corner.found("secret word", **wide) == []
    assert corner.found("secret", where=filters.parse({"k": 1}), **wide) == []
    scanned = {mid: (held, status) for mid, held, status in corner.index.scan()}
    assert scanned[held.id] == (guard(1, 2), status)
    assert scanned[never.id] == (guard(1, 5), status)


def test_a_page_names_what_it_refuses_and_takes_the_rest(corner: Corner) -> None:
    """E-10."""
    good, bad = (record("walnuts", corner.scope) for _ in range(2))
    bad = replace(bad, metadata={"n": 10**400})
    refused = corner.apply(bad, good).refused
    assert list(refused) == [bad.id]
    assert isinstance(refused[bad.id], EngineRefusedError)
    assert corner.found("walnuts") == [good.id]


def test_superseded_facts_are_shown_as_of_their_time_or_when_asked_for(corner: Corner) -> None:
    """P6: the older fact has ended where the newer one begins; an active one that ended is none."""
    ended = {"valid_to": NOW - TICK}
    (older,) = corner.add("word", status=Status.SUPERSEDED, **ended)
    (past,) = corner.add("word", **ended)
    corner.add("word", status=Status.SUPERSEDED, valid_from=NOW + TICK)
    assert corner.found("word") == []
    assert corner.found("word", include_superseded=True) == [older.id]
    before = NOW - timedelta(hours=1)
    assert set(corner.found("word", as_of=before)) == {older.id, past.id}


# Marks


def test_marks_are_kept_with_the_page_and_never_go_back(index: KeywordIndex) -> None:
    def applied(*marks: Mark) -> dict[int, Mark]:
        index.projector.apply(page_of([], marks=marks))
        return {shard: mark for shard, mark in index.marks().items() if shard in (7, 9)}

    mid = uuid4()
    low, high, new_epoch = Mark(7, 5, mid, 3, 1), Mark(7, 9, mid, 4, 1), Mark(7, 2, mid, 1, 2)
    other = Mark(9, 1, mid, 1, 1)
    assert applied(low, other) == {7: low, 9: other}
    assert applied(high) == {7: high, 9: other}
    assert applied(low) == {7: high, 9: other}
    assert applied(new_epoch) == {7: new_epoch, 9: other}
    assert applied(high) == {7: new_epoch, 9: other}
    before = dict(index.marks())
    index.reopen()
    assert index.marks() == before


def test_a_reopened_index_holds_what_it_held(corner: Corner) -> None:
    (held,) = corner.add("durable heliotrope")
    corner.index.reopen()
    assert corner.found("heliotrope") == [held.id]
    corner.apply(replace(held, text="zombie", rev=1))
    assert corner.found("heliotrope") == [held.id]


# Content


def test_an_update_replaces_the_whole_document(corner: Corner) -> None:
    """E-04, E-05, E-15: words, removed keys, expiry, status."""
    past = NOW - timedelta(days=1)
    (held,) = corner.add("likes tea", metadata={"a": 1, "project": "a"}, expires_at=past)
    moved = replace(
        held, rev=2, text="moved to Osaka", metadata={"b": 2, "project": "b"}, expires_at=None
    )
    corner.apply(moved)
    assert corner.found("tea") == []
    assert corner.found("Osaka") == [held.id]
    for where, expected in (
        ({"a": 1}, []),
        ({"a": {"exists": True}}, []),
        ({"a": {"gte": 0}}, []),
        ({"project": "a"}, []),
        ({"project": "b"}, [held.id]),
        ({"b": {"lte": 2}}, [held.id]),
    ):
        assert corner.found("Osaka", where=filters.parse(where)) == expected, where
    corner.apply(replace(moved, rev=3, status=Status.SUPERSEDED))
    assert corner.found("Osaka") == []
    assert corner.found("Osaka", include_superseded=True) == [held.id]


def test_the_last_commit_counts_and_lists_everything_once(corner: Corner) -> None:
    live_before, all_before = (corner.index.count(live=live) for live in (True, False))
    made = corner.add("one", "two", "three")
    corner.apply(replace(made[0], rev=2, status=Status.DELETED))
    corner.apply(replace(made[1], rev=2, status=Status.SUPERSEDED))
    assert corner.index.count(live=True) == live_before + 2
    assert corner.index.count(live=False) == all_before + 3
    scanned = [(mid, held, status) for mid, held, status in corner.index.scan()]
    assert len(scanned) == len({mid for mid, _, _ in scanned}) == all_before + 3
    mine = {mid: status for mid, _, status in scanned}
    assert [mine[r.id] for r in made] == [Status.DELETED, Status.SUPERSEDED, Status.ACTIVE]


# Visibility


SCALARS = st.one_of(
    st.sampled_from([3, "3", True]),
    st.sampled_from(["x", "", "true", 0, -0.0, 3.0, 2.5, -7, 1e300, False, None]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-5, 5),
)
NUMBERS = st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.sampled_from(["a", "b", "priority", "ä b.c*"])
METADATA = st.dictionaries(
    KEYS, SCALARS | st.lists(SCALARS, max_size=3) | st.just({"level": 1}), max_size=3
)
CONDITIONS = st.one_of(
    SCALARS,
    st.fixed_dictionaries({"eq": SCALARS}),
    st.fixed_dictionaries({"ne": SCALARS}),
    st.fixed_dictionaries({"contains": SCALARS}),
    st.fixed_dictionaries({"in": st.lists(SCALARS, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"exists": st.booleans()}),
    st.dictionaries(st.sampled_from(["gt", "gte", "lt", "lte"]), NUMBERS, min_size=1, max_size=2),
)
WHERE: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(KEYS, CONDITIONS, min_size=1, max_size=2),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"AND": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"OR": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"NOT": inner}),
    ),
    max_leaves=5,
)
MOMENTS = st.none() | st.sampled_from([NOW - TICK, NOW, NOW + TICK, NOW - timedelta(days=999)])
IDS = st.none() | st.sampled_from(["a", "b"])


@shared
@given(data=st.data())
def test_an_engine_shows_exactly_what_is_visible(index: KeywordIndex, data: st.DataObject) -> None:
    """S-09, P5, Q-07: scope, status, expiry, validity, filter: as canonical state decides."""
    tenant, foreign = Corner(index).tenant, Corner(index).tenant
    records = data.draw(st.lists(_records(tenant, foreign), max_size=6))
    index.projector.apply(page_of(records))
    for _ in range(10):
        visible = data.draw(_visibles(tenant))
        hits = index.reader.best(["word"], visible=visible, limit=99, timeout=SOON)
        expected = {r.id for r in records if drop_reason(r, visible) is None}
        assert {hit.memory_id for hit in hits} == expected


def _records(tenant: str, foreign: str) -> st.SearchStrategy[Record]:
    scopes = st.builds(Scope, st.sampled_from([tenant, tenant, foreign]), IDS, IDS, IDS)
    return st.builds(
        lambda scope, status, metadata, times: record(
            "word", scope, status=status, metadata=metadata, **times
        ),
        scopes,
        st.sampled_from([*Status, Status.ACTIVE, Status.ACTIVE]),
        METADATA,
        st.fixed_dictionaries({"valid_from": MOMENTS, "valid_to": MOMENTS, "expires_at": MOMENTS}),
    )


def _visibles(tenant: str) -> st.SearchStrategy[Visible]:
    return st.builds(
        lambda scope, where, **rest: Visible(scope=scope, where=filters.parse(where), **rest),
        scope=st.builds(Scope, st.just(tenant), IDS, IDS, IDS),
        where=st.none() | WHERE,
        now=st.just(NOW),
        as_of=st.sampled_from([NOW - TICK, NOW, NOW + TICK]),
        include_superseded=st.booleans(),
        show_expired=st.booleans(),
    )


HELD: list[dict[str, Any]] = [
    {},
    {"p": 3},
    {"p": 3.0, "q": "x"},
    {"p": -2.5},
    {"p": "3"},
    {"p": True},
    {"p": None},
    {"p": [1, 5, "x"]},
    {"p": []},
    {"p": {"level": 3}},
    {"q": "x"},
]
ASKED: list[dict[str, Any]] = [
    *({"p": 3}, {"p": {"eq": 3}}, {"p": {"ne": 3}}, {"NOT": {"p": 3}}, {"p": {"contains": "x"}}),
    *({"p": {"in": [3, "x"]}}, {"NOT": {"p": {"in": [3, "x"]}}}, {"p": {"exists": True}}),
    *({"p": {"exists": False}}, {"p": {"gt": -3}}, {"p": {"gt": 3}}, {"p": {"gte": 3}}),
    *({"p": {"lt": 3}}, {"p": {"lte": 3}}, {"p": {"lt": 0}}, {"p": {"gte": 2, "lt": 4}}),
    *({"p": {"gt": 4, "lt": 2}}, {"p": 3, "q": "x"}, {"OR": [{"p": 3}, {"q": "x"}]}),
    *({"AND": [{"p": 3}, {"q": "x"}]}, {"NOT": {"OR": [{"p": 3}, {"q": "x"}]}}),
    *({"NOT": {"NOT": {"p": 3}}}, {"OR": [{"NOT": {"p": 3}}, {"q": "x"}]}, {"p": None}),
]


def test_every_operator_gives_what_canonical_state_gives(corner: Corner) -> None:
    """S-09: on numbers, strings, booleans, null, lists, objects and missing keys."""
    made = [record("word", corner.scope, metadata=metadata) for metadata in HELD]
    corner.apply(*made)
    for asked in ASKED:
        where = filters.parse(asked)
        assert where is not None
        expected = [r.metadata for r in made if filters.matches(where, r.metadata)]
        found = set(corner.found("word", where=where))
        assert [r.metadata for r in made if r.id in found] == expected, asked


@pytest.mark.parametrize("held", [3, 3.0, "3", True, None, [1, 3], ["3"], {"level": 3}, 1, "true"])
def test_equality_is_typed(corner: Corner, held: object) -> None:
    """E-10."""
    (made,) = corner.add("word", metadata={"priority": held})
    for asked in (3, "3", True, None, 1):
        where = filters.parse({"priority": asked})
        assert where is not None
        expected = [made.id] if filters.matches(where, made.metadata) else []
        assert corner.found("word", where=where) == expected, asked


def test_two_thousand_keys_are_no_trouble(corner: Corner) -> None:
    """E-10: the number of fields does not grow with the keys."""
    (made,) = corner.add("word", metadata={f"key {n}": n for n in range(2000)})
    assert corner.found("word", where=filters.parse({"key 1999": {"gte": 1999}})) == [made.id]
    assert corner.found("word", where=filters.parse({"key 1999": {"gt": 1999}})) == []


@pytest.mark.parametrize(
    "raw", [{"p": {"approx": 3}}, {"p": {}}, {"p": {"gte": "3"}}, {"user_id": "b"}]
)
def test_what_an_engine_cannot_do_never_reaches_it(raw: object) -> None:
    """S-09."""
    with pytest.raises(InvalidInputError):
        filters.parse(raw)


def test_expiry_and_validity_turn_at_their_very_instant(corner: Corner) -> None:
    (held,) = corner.add("word", valid_from=NOW, valid_to=NOW + TICK, expires_at=NOW + TICK)
    assert corner.found("word") == [held.id]
    assert corner.found("word", as_of=NOW - TICK) == []
    assert corner.found("word", as_of=NOW + TICK) == []
    assert corner.found("word", now=NOW + TICK) == []
    assert corner.found("word", now=NOW + TICK, show_expired=True) == [held.id]


@pytest.mark.parametrize("year", [1, 1969, 9999])
def test_every_time_that_canonical_takes_fits(corner: Corner, year: int) -> None:
    moment = datetime(year, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    (held,) = corner.add("word", valid_from=moment)
    assert corner.found("word", as_of=moment) == [held.id]
    open_end = corner.add("word")[0]
    assert open_end.id in corner.found("word", as_of=moment, now=moment)


ODD_IDS = [
    *(
        "a-b",
        "a b",
        "a,b",
        "a/b c",
        "../a",
        "o'brien",
        "x:y",
        'a"b',
        "用户1",
        "AND",
        "-1",
        "a.b",
        "a",
    ),
    *(
        "A-B",
        "é",
        "e\u0301",
        "019f2c3a-0000-7000-8000-000000000001",
        "x" * 255,
        "x" * 256,
        "*",
        "?",
    ),
]


def test_odd_ids_find_exactly_their_own(corner: Corner) -> None:
    """S-08: in every id of a scope; the tenant too."""
    for name in ("user_id", "agent_id", "run_id"):
        made = {v: record("word", Scope(corner.tenant, **{name: v})) for v in ODD_IDS}
        corner.apply(*made.values())
        for value, held in made.items():
            assert corner.found("word", scope=Scope(corner.tenant, **{name: value})) == [held.id]
    tenants = {v: record("word", Scope(f"{corner.tenant} {v}", "u")) for v in ODD_IDS}
    corner.apply(*tenants.values())
    for held in tenants.values():
        assert corner.found("word", scope=Scope(held.scope.tenant)) == [held.id]


def test_a_small_tenant_beside_a_large_one_gets_all_of_its_own(corner: Corner) -> None:
    """Q-07."""
    corner.add(*["word word word"] * 500)
    bob = Scope(corner.tenant, user_id="bob")
    mine = corner.add("a long text with the word in it", "word again", scope=bob)
    assert set(corner.found("word", scope=bob, limit=5)) == {r.id for r in mine}


def test_a_filter_moves_no_score(corner: Corner) -> None:
    corner.add("green tea", "green tea in the morning", "coffee", metadata={"k": 1, "n": 2.5})
    plain = corner.find("green tea")
    where = filters.parse({"k": 1, "n": {"gt": 2}, "OR": [{"k": 1}, {"x": 2}], "NOT": {"z": 1}})
    assert corner.find("green tea", where=where) == plain
    assert corner.find("green tea", include_superseded=True, show_expired=True) == plain
