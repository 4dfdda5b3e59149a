"""What a search promises, over a store and indexes that go wrong in every way."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from canonical.domain.records import Status
from canonical.domain.visibility import DropReason, Visible
from canonical.errors import (
    EngineMismatchError,
    EngineUnavailableError,
    ModelUnavailableError,
)
from projectors.protocol import Hit
from search.answer import BELOW_THRESHOLD, BEYOND_TOP_K, Answer, Leg, Shortfall
from search.ports import Engines, always
from search.query import Query
from search.searcher import Searcher
from search.settings import SearchSettings
from tests.support.fakes_search import BOB, NOW, World, changed, record, visible

VECTOR, KEYWORD = Leg.VECTOR, Leg.KEYWORD
QUICK = SearchSettings(
    marks_max_age=timedelta(0),
    leg_budget=timedelta(seconds=10),
    embedding_budget=timedelta(seconds=10),
)


class Bench:
    """A world and a searcher over it."""

    def __init__(self) -> None:
        self.world = World()
        self.searchers: list[Searcher] = []

    def searcher(self, settings: SearchSettings = QUICK) -> Searcher:
        w = self.world
        engines = Engines(
            canonical=w.store,
            vector=always(w.vector),
            keyword=always(w.keyword),
            entity=always(w.entity),
            embedder=w.embedder,
        )
        self.searchers.append(made := Searcher(engines, settings))
        return made

    def search(self, text: str, settings: SearchSettings = QUICK, **asked: Any) -> Answer:
        asked.setdefault("visible", visible())
        return self.searcher(settings).search(Query(text=text, **asked))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    for searcher in made.searchers:
        searcher.close()


def texts(answer: Answer) -> list[str]:
    return [hit.record.text for hit in answer.hits]


def short(answer: Answer) -> set[tuple[str, str, str | None]]:
    return {(d.leg, d.reason.value, d.code) for d in answer.degraded}


def test_a_record_is_found_right_after_its_write_and_again_with_every_index_down(
    bench: Bench,
) -> None:
    """Q-01, P7."""
    bench.world.add(record("something else"))
    bench.world.write(record("the code word is heliotrope"))

    answer = bench.search("heliotrope", explain=True)
    assert texts(answer)[0] == "the code word is heliotrope"
    assert answer.hits[0].explain is not None
    assert answer.hits[0].explain.sources == ("tail",)
    assert not answer.degraded

    for index in bench.world.indexes.values():
        index.error = EngineUnavailableError("down")
    answer = bench.search("heliotrope")
    assert texts(answer)[0] == "the code word is heliotrope"
    assert short(answer) == {(leg, "failed", "engine_unavailable") for leg in (VECTOR, KEYWORD)}


def test_the_scope_is_searched_canonically_when_no_leg_can_find_by_content(bench: Bench) -> None:
    """Q-08."""
    bench.world.add(record("the code word is heliotrope"), record("heliotrope", BOB))
    bench.world.vector.error = bench.world.keyword.error = EngineUnavailableError("down")
    answer = bench.search("heliotrope", explain=True)
    assert texts(answer) == ["the code word is heliotrope"]
    assert {d.leg for d in answer.degraded} == {"vector", "keyword"}


def test_a_lost_index_is_failed_and_what_it_held_is_not_tail(bench: Bench) -> None:
    """Q-08, DESIGN 6."""
    bench.world.add(record("likes green tea"), record("plays chess"))
    bench.world.store.projections.pop(Leg.VECTOR)
    bench.world.store.projections[Leg.ENTITY].state = "building"
    answer = bench.search("green tea", explain=True)
    assert texts(answer) == ["likes green tea"]
    assert not answer.considered[0].tail
    assert short(answer) == {("vector", "failed", "lost"), ("entity", "failed", "rebuilding")}
    assert bench.world.vector.asked == []


def test_a_leg_that_raises_anything_is_named_and_the_others_answer(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Q-08, E-06."""
    bench.world.add(record("likes green tea"))
    bench.world.vector.error = EngineMismatchError("768 is not 1536")
    assert texts(bench.search("green tea")) == ["likes green tea"]
    assert short(bench.search("green tea")) == {("vector", "failed", "engine_mismatch")}
    bench.world.vector.error = ZeroDivisionError()
    assert short(bench.search("green tea")) == {("vector", "failed", "error")}
    assert "raised what it should not" in caplog.text


def test_a_dead_or_refusing_embedder_leaves_the_words(bench: Bench) -> None:
    bench.world.add(record("likes green tea"))
    bench.world.write(record("buys green tea"))
    bench.world.embedder.error = ModelUnavailableError("down")
    answer = bench.search("green tea")
    assert set(texts(answer)) == {"likes green tea", "buys green tea"}
    assert short(answer) == {
        ("vector", "failed", "model_unavailable"),
        ("tail", "terms_only", None),
    }
    bench.world.embedder.error = None
    bench.world.embedder.refuses = {"green tea"}
    assert ("vector", "failed", "poison") in short(bench.search("green tea"))


def test_a_slow_leg_is_not_waited_for(bench: Bench) -> None:
    bench.world.add(record("likes green tea"))
    bench.world.vector.waits_for = release = Event()
    quick = replace(QUICK, leg_budget=timedelta(milliseconds=50))
    answer = bench.search("green tea", quick)
    release.set()
    assert texts(answer) == ["likes green tea"]
    assert short(answer) == {("vector", "too_late", None)}


def test_slow_embeddings_of_the_tail_are_done_without(bench: Bench) -> None:
    bench.world.write(record("likes green tea"))
    bench.world.embedder.waits_for = release = Event()
    quick = replace(
        QUICK,
        leg_budget=timedelta(milliseconds=50),
        embedding_budget=timedelta(milliseconds=50),
    )
    answer = bench.search("green tea", quick)
    release.set()
    assert texts(answer) == ["likes green tea"]
    assert ("tail", "terms_only", None) in short(answer)


@pytest.mark.parametrize(("dead", "live", "asked"), [(1, 1, 1), (5, 5, 3), (413, 600, 20)])
def test_places_of_the_dead_are_refilled(bench: Bench, dead: int, live: int, asked: int) -> None:
    """Q-03, Q-13: the nearest are deleted, the indexes don't know it yet."""
    nearest = [record("argon2 passwords") for _ in range(dead)]
    bench.world.add(*nearest, *(record("passwords expire some day") for _ in range(live)))
    for one in nearest:
        bench.world.write(changed(one, status=Status.DELETED))
    answer = bench.search("argon2 passwords", top_k=asked)
    assert texts(answer) == ["passwords expire some day"] * asked
    assert not answer.degraded


def test_hits_that_an_index_repeats_take_nobody_s_place(bench: Bench) -> None:
    bench.world.add(*(record(f"tea {n}") for n in range(50)))
    bench.world.store.projections.pop(Leg.VECTOR)
    bench.world.keyword.lie = lambda hits, _: [hit for hit in hits for _ in range(10)]
    assert len(bench.search("tea", top_k=20).hits) == 20


def test_the_tail_begins_at_the_lowest_watermark_of_the_legs_that_find_by_content(
    bench: Bench,
) -> None:
    """P7: what one index has and the other has not is found by both scales."""
    one = bench.world.write(record("likes green tea"))
    bench.world.store.project(Leg.VECTOR, Leg.ENTITY)
    bench.world.vector.put(one)
    (told,) = bench.search("green tea", explain=True).considered
    assert told.sources == ("vector", "tail")
    assert set(told.legs) == {Leg.VECTOR, Leg.KEYWORD}
    assert told.legs[Leg.VECTOR].rank == 1
    assert told.legs[Leg.KEYWORD].rank is None


def test_records_that_died_behind_the_watermark_are_refilled_too(bench: Bench) -> None:
    """Q-03, Q-13: an index holds points that it should not (planted back, or a lost delete)."""
    nearest = [record("argon2 passwords") for _ in range(100)]
    bench.world.add(*nearest, *(record("passwords expire some day") for _ in range(9)))
    for one in nearest:
        bench.world.write(changed(one, status=Status.DELETED))
    bench.world.store.project()
    answer = bench.search("argon2 passwords", top_k=5)
    assert texts(answer) == ["passwords expire some day"] * 5


def test_refills_are_bounded_and_say_so(bench: Bench) -> None:
    dead = [record("argon2 passwords") for _ in range(200)]
    bench.world.add(*dead, record("passwords expire some day"))
    for one in dead:
        bench.world.store.records[one.id] = changed(one, status=Status.DELETED)
    answer = bench.search("argon2 passwords", replace(QUICK, refill_rounds=0))
    assert texts(answer) == []
    assert short(answer) == {("recheck", "refill_bounded", None)}


def test_expired_records_don_t_crowd_out_the_live_one(bench: Bench) -> None:
    """Q-04."""
    expired = [
        record("a parking place is free", expires_at=NOW - timedelta(seconds=1)) for _ in range(70)
    ]
    bench.world.add(*expired, record("a parking place is free, too"))
    assert texts(bench.search("a parking place is free", top_k=5)) == [
        "a parking place is free, too"
    ]
    shown = bench.search("a parking place is free", top_k=5, visible=visible(show_expired=True))
    assert texts(shown) == ["a parking place is free"] * 5


@pytest.mark.parametrize("only", Leg)
def test_what_one_leg_alone_finds_is_a_candidate(bench: Bench, only: Leg) -> None:
    """Q-05."""
    bench.world.add(*(record(f"talks about parts and numbers {n}") for n in range(80)))
    rare = record("Part ZX9QK")
    bench.world.store.write(rare)
    bench.world.store.project()
    bench.world.indexes[only].put(rare)
    answer = bench.search("which Part is ZX9QK", explain=True)
    assert rare.id in {hit.memory_id for hit in answer.hits}
    (told,) = [c for c in answer.considered if c.memory_id == rare.id]
    assert told.sources == (only.value,)


def test_each_candidate_comes_once_with_all_its_sources(bench: Bench) -> None:
    """Q-05."""
    bench.world.add(record("Anna likes tea"))
    bench.world.write(bench.world.store.records[max(bench.world.store.records)])
    answer = bench.search("what does Anna like", explain=True)
    assert [c.sources for c in answer.considered] == [("vector", "keyword", "entity", "tail")]


def test_the_new_text_is_shown_and_the_old_one_finds_nothing(bench: Bench) -> None:
    """Q-10, P6: the old text must not lift the record."""
    old = record("my locker is number 41")
    bench.world.add(old, record("the locker room is closed"))
    bench.world.write(changed(old, text="I gave the key back"))
    answer = bench.search("locker 41", threshold=0.3, explain=True)
    assert texts(answer) == ["the locker room is closed"]
    (told,) = [c for c in answer.considered if c.memory_id == old.id]
    assert told.rescored
    assert Leg.KEYWORD not in told.legs
    assert told.version == 2


def test_an_outdated_hit_behind_the_watermark_is_scored_by_its_canonical_text(
    bench: Bench,
) -> None:
    old = record("my locker is number 41")
    bench.world.add(old, record("the locker room is closed"))
    bench.world.write(changed(old, text="I gave the key back"))
    bench.world.store.project()
    answer = bench.search("locker 41", explain=True)
    assert texts(answer)[0] == "the locker room is closed"


def test_a_repaired_revision_keeps_its_score(bench: Bench) -> None:
    one = record("my locker is number 41")
    bench.world.add(one, record("nothing of the kind"))
    before = bench.search("locker 41").hits[0]
    bench.world.store.records[one.id] = replace(one, rev=7)
    after = bench.search("locker 41").hits[0]
    assert after.record.rev == 7
    assert after.score == pytest.approx(before.score)
    assert after.relevance == before.relevance


def test_another_record_s_hit_moves_no_raw_score_and_no_relevance(bench: Bench) -> None:
    """Q-15: only places in a leg's range move; the best of a leg is the top of its range."""
    bench.world.add(record("likes green tea"), record("dogs"))
    before = bench.search("green tea", explain=True).hits[0]
    bench.world.write(record("green green green tea"))
    after = next(
        h for h in bench.search("green tea", explain=True).hits if h.memory_id == before.memory_id
    )
    assert before.explain is not None
    assert after.explain is not None
    for leg in (VECTOR, KEYWORD):
        assert after.explain.legs[leg].raw == before.explain.legs[leg].raw
    assert after.relevance == before.relevance
    assert after.explain.legs[KEYWORD].normalised < before.explain.legs[KEYWORD].normalised == 1


def test_the_dead_move_no_score(bench: Bench) -> None:
    """Q-03: ranges are taken over live candidates."""
    dead = record("green green green tea")
    bench.world.add(record("likes green tea"), dead)
    bench.world.store.records[dead.id] = changed(dead, status=Status.DELETED)
    (hit,) = bench.search("green tea", explain=True).hits
    assert hit.explain is not None
    assert hit.explain.legs[KEYWORD].normalised == 1


def test_limits_at_the_edges(bench: Bench) -> None:
    """Q-16: 0 gives an empty list without asking anyone."""
    bench.world.add(*(record(f"tea {n}") for n in range(300)))
    assert bench.search("tea", top_k=0).hits == ()
    assert bench.world.store.reads == []
    assert len(bench.search("tea", top_k=1).hits) == 1
    assert len(bench.search("tea", top_k=200).hits) == 200


def test_an_empty_scope_is_said_and_not_degraded(bench: Bench) -> None:
    """Q-18, S-17."""
    answer = bench.search("anything")
    assert (answer.hits, answer.degraded, answer.scope_records) == ([], [], 0)
    bench.world.add(record("tea"))
    assert bench.search("xyzzy", threshold=0.9).scope_records == 1
    assert bench.search("tea").scope_records is None


def test_superseded_records_are_shown_only_if_asked_for(bench: Bench) -> None:
    bench.world.add(record("works at Acme", status=Status.SUPERSEDED), record("works at Umbra"))
    assert texts(bench.search("works at")) == ["works at Umbra"]
    both = bench.search("works at", visible=visible(include_superseded=True))
    assert set(texts(both)) == {"works at Acme", "works at Umbra"}
    assert {h.status for h in both.hits} == {Status.ACTIVE, Status.SUPERSEDED}


def test_a_query_without_an_answer_finds_nothing_and_an_exact_word_passes(bench: Bench) -> None:
    """Q-14."""
    bench.world.add(
        record("the meeting moved to Tuesday"), record("part number ZX9QK is in the drawer")
    )
    assert texts(bench.search("which colour has the whale", threshold=0.5)) == []
    assert texts(bench.search("ZX9QK", threshold=0.9)) == ["part number ZX9QK is in the drawer"]


def test_a_query_without_words_asks_no_words(bench: Bench) -> None:
    """Q-11."""
    bench.world.add(*(record(f"tea {n}") for n in range(3)))
    answer = bench.search("\uff01\uff1f")
    assert bench.world.keyword.asked == []
    assert all(c.legs.get(Leg.KEYWORD) is None for c in answer.considered)


def test_more_tail_than_one_search_looks_at_is_said(bench: Bench) -> None:
    for n in range(20):
        bench.world.write(record(f"tea number {n}"))
    answer = bench.search("tea", replace(QUICK, tail_limit=10), top_k=50)
    assert len(answer.hits) == 10
    assert ("tail", "tail_truncated", None) in short(answer)


def test_lag_is_called_degraded_only_when_it_is_unusual(bench: Bench) -> None:
    """Q-08."""
    bench.world.add(record("tea"))
    served = bench.world.store.projections
    served[Leg.KEYWORD] = replace(
        served[Leg.KEYWORD], lag={0: 3, 1: 2}, oldest_unserved_seconds=0.4
    )
    assert bench.search("tea").degraded == []
    served[Leg.KEYWORD].oldest_unserved_seconds = 2.5
    (one,) = bench.search("tea").degraded
    assert (one.leg, one.reason, one.lag_positions, one.lag_seconds) == (
        "keyword",
        Shortfall.LAGGING,
        5,
        2.5,
    )
    served[Leg.KEYWORD] = replace(served[Leg.KEYWORD], halted=True, error_code="position_gap")
    assert short(bench.search("tea")) == {("keyword", "halted", "position_gap")}


def test_marks_are_read_before_any_engine_is_asked_and_kept_only_for_a_moment(
    bench: Bench,
) -> None:
    """P7: later marks would hide what was projected between the engine's answer and the tail."""
    bench.world.add(record("tea"))

    def note(hits: list[Hit], _: Visible) -> list[Hit]:
        bench.world.store.reads.append(("best", None))
        return hits

    bench.world.keyword.lie = note
    bench.search("tea")
    kinds = [kind for kind, _ in bench.world.store.reads]
    assert kinds.index("served") < kinds.index("best")

    searcher = bench.searcher(replace(QUICK, marks_max_age=timedelta(minutes=5)))
    bench.world.store.reads.clear()
    for _ in range(3):
        searcher.search(Query(text="tea", visible=visible()))
    assert [kind for kind, _ in bench.world.store.reads].count("served") == 1


def test_explain_tells_of_every_candidate_why_it_stands_where_it_does(bench: Bench) -> None:
    hits = [record(f"Anna likes tea {'very ' * n}much") for n in range(4)]
    gone = record("Anna liked tea once")
    foreign = record("Anna of Bob likes tea", BOB)
    bench.world.add(*hits, gone, foreign, record("whales sing"))
    bench.world.write(changed(gone, status=Status.DELETED))
    bench.world.vector.lie = lambda found, _: [*found, *bench.world.vector.answer_for(foreign)]
    answer = bench.search("Anna likes tea", top_k=2, threshold=0.3, explain=True)

    by_id = {c.memory_id: c for c in answer.considered}
    assert foreign.id not in by_id, "an explanation shows nothing of another scope"
    assert by_id[gone.id].dropped == DropReason.DELETED
    live = [c for c in answer.considered if c.rank is not None]
    assert [c.rank for c in live] == list(range(1, len(live) + 1))
    assert [c.dropped for c in live[:2]] == [None, None]
    assert {c.dropped for c in live[2:]} <= {BEYOND_TOP_K, BELOW_THRESHOLD}
    first = answer.hits[0].explain
    assert first is not None
    assert first.entity is not None
    assert (first.entity.name, first.entity.similarity) == ("anna", 1.0)
    for leg in Leg:
        told = first.legs[leg]
        assert told.rank is not None
        assert 0 <= told.normalised <= 1
    assert 0 < answer.hits[1].score <= answer.hits[0].score <= 1


def test_equal_scores_stand_in_the_order_of_their_ids(bench: Bench) -> None:
    same = [record("tea") for _ in range(30)]
    bench.world.add(*reversed(same))
    assert [h.memory_id for h in bench.search("tea", top_k=30).hits] == [r.id for r in same]


def test_a_scope_sees_only_its_own(bench: Bench) -> None:
    """S-06, Q-07."""
    bench.world.add(record("MARKER-7Q2X", BOB), record("MARKER of alice"))
    assert texts(bench.search("MARKER-7Q2X")) == ["MARKER of alice"]
