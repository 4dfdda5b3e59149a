"""P6: whatever engines say, an answer holds what canonical state allows, and says what is short."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import isnan
from threading import Event
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from canonical.domain import filters
from canonical.domain.records import Record, Status
from canonical.domain.visibility import Visible, drop_reason
from canonical.errors import EngineUnavailableError, HaltError
from projectors.keyword import analysis
from projectors.keyword.relevance import coverage
from projectors.protocol import Hit
from search.answer import Answer, Leg, Shortfall
from search.health import CONTENT_LEGS
from search.ports import Engines, always
from search.query import Query
from search.relevance import meaning
from search.searcher import Searcher
from search.settings import SearchSettings
from tests.support.fakes_search import (
    ALICE,
    BOB,
    ELSEWHERE,
    NOW,
    UNRELATED,
    Index,
    World,
    changed,
    cosine,
    record,
)

# Small limits, so that a few records need refills; more rounds than any example can use up.
SETTINGS = SearchSettings(
    over_fetch=1,
    over_fetch_min=3,
    refill_rounds=12,
    marks_max_age=timedelta(0),
    leg_budget=timedelta(seconds=20),
    embedding_budget=timedelta(seconds=20),
    tail_limit=100,
)
IMPATIENT = timedelta(milliseconds=30)
WORDS = ("tea", "green", "likes", "Anna", "locker", "41", "drives")
HOUR = timedelta(hours=1)


def texts() -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)


def records() -> st.SearchStrategy[Record]:
    times = st.sampled_from([None, None, None, NOW - HOUR, NOW, NOW + HOUR])
    return st.builds(
        record,
        texts(),
        st.sampled_from([ALICE, ALICE, ALICE, replace(ALICE, run_id="r"), BOB, ELSEWHERE]),
        status=st.sampled_from([Status.ACTIVE] * 3 + [*Status]),
        expires_at=times,
        valid_from=st.sampled_from([None, None, NOW - HOUR, NOW + HOUR]),
        valid_to=st.sampled_from([None, None, NOW + 2 * HOUR]),
        metadata=st.sampled_from([{}, {"project": "a"}, {"project": "b"}]),
    )


def views() -> st.SearchStrategy[Visible]:
    return st.builds(
        Visible,
        scope=st.sampled_from([ALICE, replace(ALICE, run_id="r")]),
        now=st.just(NOW),
        as_of=st.sampled_from([NOW, NOW - 2 * HOUR, NOW + HOUR]),
        where=st.sampled_from([None, None, filters.parse({"project": "a"})]),
        include_superseded=st.booleans(),
        show_expired=st.booleans(),
    )


@dataclass
class Planted:
    """A hit that an index gives though nothing it holds warrants it. `at`: of which record."""

    at: int
    rev: int
    score: float


@dataclass
class Engine:
    """What is wrong with one index."""

    holds: list[int]  # per record: 0 not at all, 1 an older text, 2 the present one
    planted: list[Planted]
    repeats: int
    trouble: str
    mark: int  # of a hundred, how far its watermark has come


def engines(size: int) -> st.SearchStrategy[Engine]:
    score = st.floats(-2, 50) | st.sampled_from([float("nan"), float("inf"), -float("inf")])
    planted = st.builds(Planted, st.integers(0, max(size, 1) - 1), st.integers(0, 3), score)
    trouble = ["none"] * 8 + ["down", "bug", "lost", "halted", "lagging"]
    return st.builds(
        Engine,
        st.lists(st.sampled_from([0, 1, 2, 2, 2]), min_size=size, max_size=size),
        st.lists(planted, max_size=4 if size else 0),
        st.sampled_from([1, 3]),
        st.sampled_from(trouble),
        st.sampled_from([100, 100, 100, 0, 50]),
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, dict[Leg, Engine]]:
    world = World()
    made = draw(st.lists(records(), max_size=4) | st.lists(records(), min_size=10, max_size=16))
    stored = [world.write(_aged(draw, one)) for one in made]
    wrong = {leg: draw(engines(len(stored))) for leg in Leg}
    for number in draw(st.sets(st.integers(0, max(len(stored) - 1, 0)))) if stored else ():
        for engine in wrong.values():
            engine.holds[number] = 0  # not projected anywhere yet
    for leg, engine in wrong.items():
        _set_up(world, leg, engine, stored)
    return world, wrong


def _aged(draw: st.DrawFn, one: Record) -> Record:
    """Let some records have a past that indexes may still hold."""
    return changed(one) if draw(st.booleans()) else one


def _set_up(world: World, leg: Leg, engine: Engine, stored: Sequence[Record]) -> None:
    index = world.indexes[leg]
    index.lie = _liar(engine, stored)
    for one, holds in zip(stored, engine.holds, strict=True):
        if holds == 2:
            index.put(one)
        elif holds == 1:
            index.put(replace(one, rev=one.rev - 1, text="green tea locker 41 Anna"))
    served = world.store.projections[leg]
    served.marks = {s: len(ids) * engine.mark // 100 for s, ids in world.store.log.items()}
    match engine.trouble:
        case "down":
            index.error = EngineUnavailableError("down")
        case "bug":
            index.error = KeyError("bug")
        case "lost":
            world.store.projections.pop(leg)
        case "halted":
            served.halted, served.error_code = True, HaltError.code
        case "lagging":
            served.lag, served.oldest_unserved_seconds = {0: 2}, 60.0
        case _:
            pass


def _liar(engine: Engine, stored: Sequence[Record]) -> Callable[[list[Hit], Visible], list[Hit]]:
    planted = [Hit(stored[p.at].id, p.rev, p.score) for p in engine.planted]
    return lambda found, _: [hit for hit in (*planted, *found) for _ in range(engine.repeats)]


def _search(world: World, query: Query, with_: SearchSettings = SETTINGS) -> Answer:
    made = Engines(
        canonical=world.store,
        vector=always(world.vector),
        keyword=always(world.keyword),
        entity=always(world.entity),
        embedder=world.embedder,
    )
    searcher = Searcher(made, with_)
    try:
        return searcher.search(query)
    finally:
        searcher.close()


def queries(**fixed: Any) -> st.SearchStrategy[Query]:
    asked: dict[str, Any] = {
        "text": texts(),
        "visible": views(),
        "top_k": st.integers(1, 9),
        "threshold": st.sampled_from([0.0, 0.0, 0.3, 0.8]),
        "explain": st.just(True),  # noqa: FBT003
    }
    return st.builds(Query, **(asked | fixed))


@settings(max_examples=120, deadline=None)
@given(worlds(), queries())
def test_whatever_engines_say_each_hit_is_allowed_canonical_and_relevant(
    made: tuple[World, dict[Leg, Engine]], query: Query
) -> None:
    """Q-03, Q-05, Q-10, Q-13, Q-14, S-06."""
    world, _ = made
    answer = _search(world, query)
    assert len(answer.hits) <= query.top_k
    assert len({hit.memory_id for hit in answer.hits}) == len(answer.hits)
    for hit in answer.hits:
        held = world.store.records[hit.memory_id]
        assert hit.record == held, "the canonical text, and no other"
        assert drop_reason(held, query.visible) is None
        assert 0 <= hit.score <= 1
        assert query.threshold <= hit.relevance <= 1
    order = [(-hit.score, hit.memory_id) for hit in answer.hits]
    assert order == sorted(order)


@settings(max_examples=120, deadline=None)
@given(worlds(), queries(threshold=st.just(0.0)))
def test_as_many_are_found_as_there_are_live_ones_on_offer(
    made: tuple[World, dict[Leg, Engine]], query: Query
) -> None:
    """Q-03, Q-04, P7: dead, repeated and foreign hits take nobody's place; the tail is whole."""
    world, wrong = made
    answer = _search(world, query)
    offered = {
        hit.memory_id
        for leg, engine in wrong.items()
        if engine.trouble not in ("down", "bug", "lost")
        for hit in world.indexes[leg].offered
    }
    live = {r.id for r in world.store.records.values() if drop_reason(r, query.visible) is None}
    findable = live & (offered | _tail_ids(world, wrong))
    assert len(answer.hits) == min(query.top_k, len(findable))
    assert {hit.memory_id for hit in answer.hits} <= findable


def _tail_ids(world: World, wrong: dict[Leg, Engine]) -> set[Any]:
    """Return what lies above the lowest watermark of a leg that finds by content and serves.

    All of it, if none of them answers.
    """
    serving = [leg for leg in CONTENT_LEGS if wrong[leg].trouble != "lost"]
    if all(wrong[leg].trouble in ("down", "bug") for leg in serving):
        serving = []
    floors = [world.store.projections[leg].marks for leg in serving]
    return {
        memory_id
        for shard, ids in world.store.log.items()
        for memory_id in ids[min((marks[shard] for marks in floors), default=0) :]
    }


@settings(max_examples=60, deadline=None)
@given(worlds(), queries())
def test_degraded_names_exactly_the_legs_that_fell_short(
    made: tuple[World, dict[Leg, Engine]], query: Query
) -> None:
    """Q-08."""
    world, wrong = made
    answer = _search(world, query)
    told = {d.leg: (d.reason, d.code) for d in answer.degraded}
    asks_names = any(word[0].isupper() for word in query.text.split())
    expected: dict[str, tuple[Shortfall, str | None]] = {}
    for leg, engine in wrong.items():
        is_asked = leg is not Leg.ENTITY or asks_names
        match engine.trouble:
            case "down" if is_asked:
                expected[leg.value] = (Shortfall.FAILED, "engine_unavailable")
            case "bug" if is_asked:
                expected[leg.value] = (Shortfall.FAILED, "error")
            case "lost":
                expected[leg.value] = (Shortfall.FAILED, "lost")
            case "halted":
                expected[leg.value] = (Shortfall.HALTED, "halt")
            case "lagging":
                expected[leg.value] = (Shortfall.LAGGING, None)
            case _:
                pass
    assert told == expected


@settings(max_examples=100, deadline=None)
@given(worlds(), queries())
def test_only_what_is_true_of_the_present_text_lifts_a_record(
    made: tuple[World, dict[Leg, Engine]], query: Query
) -> None:
    """Q-10: a leg's word about another revision counts for nothing; relevance is the text's own."""
    world, wrong = made
    answer = _search(world, query)
    asked = analysis.query_terms(query.text)
    for told in answer.considered:
        if told.rank is None:
            continue
        held = world.store.records[told.memory_id]
        planted = {(held.id, p.rev) for e in wrong.values() for p in e.planted}
        for leg, said in told.legs.items():
            if said.rank is not None:
                assert _offered(world.indexes[leg], held, said.raw)
        if (held.id, held.rev) in planted:
            continue  # an index lies about the very revision: no one can tell
        words = coverage(asked, analysis.terms(held.text))
        sense = meaning(cosine(world.embedder, query.text, held.text), UNRELATED)
        assert told.relevance is not None
        assert told.relevance <= max(words, sense) + 1e-6


def _offered(index: Index, held: Record, raw: float) -> bool:
    same = [h for h in index.offered if h.memory_id == held.id and h.rev == held.rev]
    return any(h.score == raw or (isnan(h.score) and isnan(raw)) for h in same)


@settings(max_examples=10, deadline=None)
@given(worlds(), queries(), st.sets(st.sampled_from(CONTENT_LEGS), min_size=1))
def test_legs_that_hang_are_named_and_the_rest_is_still_true(
    made: tuple[World, dict[Leg, Engine]], query: Query, hanging: set[Leg]
) -> None:
    """Q-08."""
    world, wrong = made
    release = Event()
    for leg in hanging:
        world.indexes[leg].waits_for = release
    answer = _search(world, query, replace(SETTINGS, leg_budget=IMPATIENT))
    release.set()
    late = {d.leg for d in answer.degraded if d.reason is Shortfall.TOO_LATE}
    assert late >= {leg.value for leg in hanging if wrong[leg].trouble != "lost"}
    for hit in answer.hits:
        assert hit.record == world.store.records[hit.memory_id]
        assert drop_reason(hit.record, query.visible) is None
