"""What a search by meaning sees, whichever engine holds the index: exactly what it may."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from canonical.domain.filters import AllOf, AnyOf, Condition, Filter, Not, Operator, matches, parse
from canonical.domain.records import Record, Status
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible, drop_reason
from canonical.errors import (
    EngineMismatchError,
)
from projectors.vector import mapping
from tests.support.vector_index import (
    DIMENSION,
    IDS,
    IMPLEMENTATIONS,
    NOW,
    SOON,
    Corner,
    OpenIndex,
    index_on,
    record,
    vector_of,
)

MICROSECOND = timedelta(microseconds=1)
EVERYTHING = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module", params=IMPLEMENTATIONS, ids=IDS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An index that tests share: each has a tenant of its own."""
    with index_on(request, tmp_path_factory.mktemp("shared")) as index:
        yield index


@pytest.fixture
def corner(shared: OpenIndex) -> Corner:
    return Corner(shared)


# Search


def test_nothing_asked_nothing_found(corner: Corner) -> None:
    corner.add("tea")
    assert corner.find(limit=0) == []
    assert corner.find(limit=-1) == []


def test_scores_are_cosines_best_first(corner: Corner) -> None:
    """Q-14: the equal text has 1 and is first, the opposite has -1 and is last."""
    texts = ["what does the user like to eat", "eat well", "stocks fell", "rain in Oslo"]
    records = {r.id: r for r in corner.add(*texts)}
    opposite = record("opposite", corner.scope)
    write = mapping.write_for(opposite, -vector_of(texts[0]), epoch=1, dimension=DIMENSION)
    corner.index.write([write], [])
    hits = corner.find(texts[0])
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert records[hits[0].memory_id].text == texts[0]
    assert hits[0].score == pytest.approx(1, abs=1e-5)
    assert hits[-1].memory_id == opposite.id
    assert hits[-1].score == pytest.approx(-1, abs=1e-5)
    for hit in hits[:-1]:
        expected = float(vector_of(records[hit.memory_id].text) @ vector_of(texts[0]))
        assert hit.score == pytest.approx(expected, abs=1e-5)


def test_a_query_vector_of_any_length_gives_cosines(corner: Corner) -> None:
    """Q-14: a threshold on the score means the same for every query."""
    corner.add("tea")
    visible = Visible(scope=corner.scope, now=NOW, as_of=NOW)
    for scale in (1e-6, 1.0, 1e6):
        (hit,) = corner.index.reader.nearest(
            vector_of("tea") * np.float32(scale), visible=visible, limit=1, timeout=SOON
        )
        assert hit.score == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_query_without_direction_finds_nothing(corner: Corner, value: float) -> None:
    corner.add("tea")
    visible = Visible(scope=corner.scope, now=NOW, as_of=NOW)
    vector = np.full(DIMENSION, value, dtype=np.float32)
    assert corner.index.reader.nearest(vector, visible=visible, limit=5, timeout=SOON) == []


def test_a_query_of_another_dimension_is_refused(corner: Corner) -> None:
    """E-06: never an empty answer instead; both numbers are named."""
    visible = Visible(scope=corner.scope, now=NOW, as_of=NOW)
    with pytest.raises(EngineMismatchError, match=f"{DIMENSION + 1}.*{DIMENSION}"):
        corner.index.reader.nearest(
            np.ones(DIMENSION + 1, dtype=np.float32), visible=visible, limit=5, timeout=SOON
        )


def test_all_that_is_found_is_the_nearest(corner: Corner) -> None:
    """Exact: the same order as all cosines computed one by one."""
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((700, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    records = [record("any", corner.scope) for _ in vectors]
    corner.index.write(
        [
            mapping.write_for(r, v, epoch=1, dimension=DIMENSION)
            for r, v in zip(records, vectors, strict=True)
        ],
        [],
    )
    cosines = vectors @ vector_of("tea")
    expected = [records[n].id for n in np.argsort(-cosines)[:60]]
    assert corner.found("tea", limit=60) == expected


def test_a_small_scope_among_many_nearer_ones_gets_all_of_its_own(corner: Corner) -> None:
    """Q-07: bob has 5,000 nearer than alice's 3; another tenant, too; 322 of 644 by a filter."""
    bob, other = Scope(corner.tenant, user_id="bob"), Scope(corner.tenant + "x", user_id="alice")
    corner.apply(*(record("tea", bob) for _ in range(4_000)))
    corner.apply(*(record("tea", other) for _ in range(1_000)))
    alice = corner.add("tea of old", "tea of late", "tea of never")
    assert set(corner.found("tea", limit=5)) == {r.id for r in alice}
    carol = Scope(corner.tenant, user_id="carol")
    many = [record("tea", carol, metadata={"odd": bool(n % 2)}) for n in range(644)]
    corner.apply(*many)
    found = corner.found("tea", limit=644, scope=carol, where=parse({"odd": True}))
    assert set(found) == {r.id for r in many if r.metadata["odd"]}
    assert len(found) == 322


ODD_IDS = [
    *("a-b", "a b", "a/b c", "../a", "o'brien", "x:y", 'a"b', "用户1", str(UUID(int=7)), "AND"),
    *("-1", "a.b", "x" * 256, "x" * 255, "A-B", "é", "e\u0301", "%", "_", "null", "true", "[]"),
    *("\\", "a\\b", "{}", "🎈", "user_id", "a-b ", " a-b", "0", "00", "1e3"),
]


@pytest.mark.parametrize("field", ["user_id", "agent_id", "run_id", "tenant"])
def test_each_id_finds_exactly_its_own(shared: OpenIndex, field: str) -> None:
    """S-08: an id is a value, whatever its characters, and equals itself only."""
    corner = Corner(shared)

    def scope(odd: str) -> Scope:
        if field == "tenant":
            return Scope(f"{corner.tenant}{odd}", user_id="alice")
        return Scope(corner.tenant, **{field: odd})

    mine = {odd: record("tea", scope(odd)) for odd in ODD_IDS}
    corner.apply(*mine.values())
    for odd, made in mine.items():
        assert corner.found(scope=scope(odd)) == [made.id], odd


def test_an_id_that_is_not_named_is_free_and_a_missing_one_matches_no_name(corner: Corner) -> None:
    (only_user,) = corner.add("tea", scope=Scope(corner.tenant, user_id="u"))
    (both,) = corner.add("tea", scope=Scope(corner.tenant, user_id="u", agent_id="a"))
    (only_agent,) = corner.add("tea", scope=Scope(corner.tenant, agent_id="a"))
    assert set(corner.found(scope=Scope(corner.tenant, user_id="u"))) == {only_user.id, both.id}
    assert set(corner.found(scope=Scope(corner.tenant, agent_id="a"))) == {both.id, only_agent.id}
    assert corner.found(scope=Scope(corner.tenant, user_id="u", agent_id="a")) == [both.id]


def test_values_of_one_key_keep_their_types(corner: Corner) -> None:
    """E-10: typed equality, lists by their items, and 2,000 keys in one record."""
    values: list[Any] = [
        3,
        "high",
        {"level": 1},
        None,
        [1, "x"],
        "3",
        3.0,
        True,
        "true",
        1,
        [],
        [[3]],
    ]
    records = [
        record(f"tea {n}", corner.scope, metadata={"priority": value})
        for n, value in enumerate(values)
    ]
    wide = record("tea", corner.scope, metadata={f"key {n}": n for n in range(2_000)})
    corner.apply(*records, wide)
    assert len(corner.found()) == len(values) + 1

    def found(raw: object) -> list[int]:
        ids = set(corner.found(where=parse(raw)))
        return [n for n, r in enumerate(records) if r.id in ids]

    assert found({"priority": 3}) == [0, 6]
    assert found({"priority": "3"}) == [5]
    assert found({"priority": True}) == [7]
    assert found({"priority": 1}) == [4, 9]
    assert found({"priority": None}) == [3]
    assert found({"priority": {"contains": "x"}}) == [4]
    assert found({"priority": {"gte": 3}}) == [0, 6]
    assert found({"priority": {"lt": 3}}) == [4, 9]
    assert found({"priority": {"exists": True}}) == list(range(12))
    assert found({"priority": {"exists": False}}) == []
    assert found({"priority": {"ne": 3}}) == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert corner.found(where=parse({"key 1999": 1999})) == [wide.id]


def test_a_range_is_about_one_key(corner: Corner) -> None:
    """S-09: a number under another key doesn't count, nor does another number of a list twice."""
    first, second = (
        record("tea", corner.scope, metadata=metadata)
        for metadata in ({"a": 1, "b": 9}, {"a": [1, 9], "b": 1})
    )
    corner.apply(first, second)
    assert corner.found(where=parse({"a": {"gt": 5}})) == [second.id]
    assert corner.found(where=parse({"b": {"gt": 5}})) == [first.id]


EDGES = [NOW - MICROSECOND, NOW, NOW + MICROSECOND]


@pytest.mark.parametrize("asked", EDGES)
def test_moments_are_exact_to_the_microsecond(corner: Corner, asked: datetime) -> None:
    """Q: expired from its instant on; valid from its start on, up to its end and not at it."""
    expires, starts, ends = (
        record("tea", corner.scope, **{name: NOW})
        for name in ("expires_at", "valid_from", "valid_to")
    )
    corner.apply(expires, starts, ends)
    expected = {
        r.id
        for r in (expires, starts, ends)
        if drop_reason(r, Visible(scope=corner.scope, now=asked, as_of=asked)) is None
    }
    assert set(corner.found(now=asked, as_of=asked)) == expected
    assert (expires.id in corner.found(now=asked, as_of=asked, show_expired=True)) is True


# The engine agrees with the last word on what may be seen

KEYS = ["a", "a", "b", "ключ", "a.b", "a[]", "$"]
NUMBERS: st.SearchStrategy[float] = st.one_of(
    st.sampled_from([0, -0.0, 1, 3, 3.0, 0.1 + 0.2, 0.3, 2**53, 2**53 + 1, -1, 1e308, 5e-324]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**70), 2**70),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), NUMBERS, st.sampled_from(["", "3", "x", "true", "é", "e\u0301", " x"])
)
METADATA = st.dictionaries(
    st.sampled_from(KEYS),
    st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.just({"nested": 3})),
    max_size=4,
)
ALWAYS = st.just(True)  # noqa: FBT003 - the value itself
CONDITIONS = st.one_of(
    st.builds(Condition, st.sampled_from(KEYS), st.just(Operator.EQ), SCALARS),
    st.builds(
        Condition,
        st.sampled_from(KEYS),
        st.just(Operator.IN),
        st.lists(SCALARS, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(
        Condition,
        st.sampled_from(KEYS),
        st.sampled_from([Operator.GT, Operator.GTE, Operator.LT, Operator.LTE]),
        NUMBERS,
    ),
    st.builds(Condition, st.sampled_from(KEYS), st.just(Operator.EXISTS), value=ALWAYS),
)
FILTERS: st.SearchStrategy[Filter] = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.builds(AllOf, st.lists(inner, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=6,
)
NEAR = st.sampled_from([NOW + n * MICROSECOND for n in range(-2, 3)])
FAR = st.sampled_from(
    [
        *(datetime(year, 1, 1, tzinfo=UTC) for year in (1, 1600, 1684, 1685, 1970)),
        *(datetime(year, 12, 31, tzinfo=UTC) for year in (2254, 2256, 2500, 9999)),
    ]
)
IDS_OF_SCOPES = st.sampled_from([None, "u", "v", "U", "u "])


def scopes(tenants: list[str]) -> st.SearchStrategy[Scope]:
    return st.builds(Scope, st.sampled_from(tenants), IDS_OF_SCOPES, IDS_OF_SCOPES, IDS_OF_SCOPES)


def records_of(tenants: list[str], moments: st.SearchStrategy[datetime]) -> st.SearchStrategy[Any]:
    maybe = st.none() | moments
    return st.builds(
        lambda scope, status, metadata, start, end, expires: record(
            "tea",
            scope,
            status=status,
            metadata=metadata,
            valid_from=start,
            valid_to=end,
            expires_at=expires,
        ),
        scopes(tenants),
        st.sampled_from(Status),
        METADATA,
        maybe,
        maybe,
        maybe,
    )


def questions(
    tenants: list[str], moments: st.SearchStrategy[datetime]
) -> st.SearchStrategy[Visible]:
    return st.builds(
        Visible,
        scope=scopes(tenants),
        now=moments,
        as_of=moments,
        where=st.none() | FILTERS,
        include_superseded=st.booleans(),
        show_expired=st.booleans(),
    )


def seen_and_allowed(
    corner: Corner, records: list[Record], visible: Visible
) -> tuple[set[UUID], set[UUID]]:
    hits = corner.index.reader.nearest(vector_of("tea"), visible=visible, limit=1_000, timeout=SOON)
    allowed = {r.id for r in records if drop_reason(r, visible) is None}
    return {hit.memory_id for hit in hits}, allowed


@EVERYTHING
@given(data=st.data())
def test_the_engine_shows_exactly_what_may_be_seen(shared: OpenIndex, data: st.DataObject) -> None:
    """S-09, E-05, E-10, P5: the same ids as `drop_reason`, for any records and any question."""
    corner = Corner(shared)
    tenants = [corner.tenant, corner.tenant + "x"]
    records = data.draw(st.lists(records_of(tenants, NEAR), min_size=1, max_size=8))
    corner.apply(*records)
    for visible in data.draw(st.lists(questions(tenants, NEAR), min_size=1, max_size=8)):
        seen, allowed = seen_and_allowed(corner, records, visible)
        assert seen == allowed


@EVERYTHING
@given(metadata=st.lists(METADATA, min_size=1, max_size=8), wheres=st.lists(FILTERS, max_size=8))
@example(metadata=[{}], wheres=[AnyOf(()), AllOf(()), Not(AnyOf(())), Not(AllOf(()))])
def test_a_filter_selects_exactly_what_it_means(
    shared: OpenIndex, metadata: list[dict[str, Any]], wheres: list[Filter]
) -> None:
    """S-09, E-10: nothing but the filter decides, so each example tests it on each record."""
    corner = Corner(shared)
    records = [record("tea", corner.scope, metadata=held) for held in metadata]
    corner.apply(*records)
    for where in wheres:
        assert set(corner.found(where=where)) == {
            r.id for r in records if matches(where, r.metadata)
        }


@EVERYTHING
@given(data=st.data())
def test_far_moments_hide_nothing(shared: OpenIndex, data: st.DataObject) -> None:
    """Q: an engine may show a little more than may be seen, never less: year 1 to 9999."""
    corner = Corner(shared)
    moments = st.one_of(FAR, NEAR)
    spans = st.tuples(*[st.none() | moments] * 3)
    names = ("valid_from", "valid_to", "expires_at")
    records = [
        record("tea", corner.scope, **dict(zip(names, span, strict=True)))
        for span in data.draw(st.lists(spans, min_size=8, max_size=8))
    ]
    corner.apply(*records)
    for now, as_of in data.draw(st.lists(st.tuples(moments, moments), min_size=8, max_size=8)):
        visible = Visible(scope=corner.scope, now=now, as_of=as_of)
        seen, allowed = seen_and_allowed(corner, records, visible)
        assert allowed <= seen


@given(number=NUMBERS)
@settings(EVERYTHING, max_examples=100)
@example(number=0.1 + 0.2)
def test_a_number_comes_back_from_the_engine_as_the_same_double(
    shared: OpenIndex, number: float
) -> None:
    """S-09: the bound is the number itself, so one bit lost on the way would show."""
    corner = Corner(shared)
    (held,) = corner.add("tea", metadata={"n": number})
    for op, expected in (("gte", True), ("lte", True), ("gt", False), ("lt", False)):
        assert (corner.found(where=parse({"n": {op: number}})) == [held.id]) is expected, op
