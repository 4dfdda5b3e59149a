"""One search in progress: what was asked, what is known so far, what is still missing."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from uuid import UUID

from canonical import tracing
from canonical.domain.records import Record
from projectors.keyword import analysis
from projectors.keyword.relevance import Statistics
from search import health, ranking, rescoring
from search.answer import RECHECK, TAIL, Considered, Degraded, EntityFactor, Leg, Shortfall
from search.candidates import Field
from search.fusion import weight_of
from search.legs import Legs
from search.ports import Engines, Served, Tail
from search.query import Query
from search.ranking import Ranking, Rescored, Scored, Yardstick
from search.relevance import relevance
from search.settings import SearchSettings


class Run:
    """One search. Call `start`, then `finish`; the rest tells what came out."""

    def __init__(
        self, query: Query, engines: Engines, settings: SearchSettings, pool: Executor
    ) -> None:
        self.query, self._engines, self._settings, self._pool = query, engines, settings, pool
        self.terms = analysis.query_terms(query.text)
        self.legs = Legs(engines, query, self.terms, settings.leg_budget)
        self.field = Field(query.visible)
        self.rounds = 1
        self.seconds: dict[str, float] = {}
        self._degraded: list[Degraded] = []
        self._limit = max(settings.over_fetch * query.top_k, settings.over_fetch_min)
        self._texts = rescoring.TextTerms()
        self._bm25: dict[UUID, float] = {}
        self._cosines: dict[UUID, float] = {}
        self._factors: dict[UUID, EntityFactor] = {}
        self._rescored: set[UUID] = set()
        self._statistics: Statistics | None = None

    def start(self, served: Mapping[str, Served]) -> None:
        """Ask the legs that serve, and read the tail meanwhile.

        `served` must have been read before: see `health.Marks`.
        """
        self._degraded += health.shortfalls(served, self._settings)
        serving = health.serving(served)
        self.legs.prepare({leg: served[leg].generation for leg in serving})
        wait = self.legs.start(self._pool, self._limit)
        tail = self._read_tail(health.tail_floor(served, serving))
        wait()
        if self._is_blind():
            tail = self._read_tail([])
        if tail.truncated:
            self._degraded.append(Degraded(TAIL, Shortfall.TAIL_TRUNCATED))
        self.field.take_tail(tail.records)
        self._take()

    def _is_blind(self) -> bool:
        """Tell whether no leg that finds by content has answered, though one should serve."""
        asked = [self.legs.asked[leg] for leg in health.CONTENT_LEGS if leg in self.legs.asked]
        return bool(asked) and all(one.shortfall is not None for one in asked)

    def _read_tail(self, floor: Sequence[Mapping[int, int]]) -> Tail:
        with self._timed(TAIL):
            return self._engines.canonical.tail(
                self.query.visible.scope,
                floor,
                limit=self._settings.tail_limit,
                must_reach=self.query.after,
            )

    def _take(self) -> None:
        for asked in self.legs.asked.values():
            self.field.take(asked.leg, asked.hits)

    def finish(self) -> Ranking:
        """Re-check, rank, and refill the places of the dead, until nothing more can be had."""
        ends = time.monotonic() + self._settings.leg_budget.total_seconds()
        while True:
            fell = self._recheck()
            ranked = self._rank()
            if len(ranked.chosen) >= self.query.top_k or not self.legs.can_give_more:
                return ranked
            if not fell and len(self.field.live) >= self.query.top_k:
                return ranked  # enough are live: it is their relevance that falls short
            if self.rounds > self._settings.refill_rounds or time.monotonic() >= ends:
                self._degraded.append(Degraded(RECHECK, Shortfall.REFILL_BOUNDED))
                return ranked
            self._deepen()

    def _deepen(self) -> None:
        self.rounds += 1
        self._limit *= 2
        self.legs.start(self._pool, self._limit)()
        self._take()

    def _recheck(self) -> int:
        unknown = self.field.unknown()
        with self._timed(RECHECK):
            tenant = self.query.visible.scope.tenant
            read = self._engines.canonical.current(tenant, unknown) if unknown else {}
        return self.field.judge(read)

    def _rank(self) -> Ranking:
        self._rescore()
        rescored = Rescored(self._bm25, self._cosines, self._factors)
        raws = [
            ranking.raw(candidate, record, rescored, self.legs.factors)
            for candidate, record in self.field.live
        ]
        scored = ranking.score(raws, self._yardstick())
        return ranking.rank(
            scored,
            self.relevance_of,
            verbatim=self.query.text,
            top_k=self.query.top_k,
            threshold=self.query.threshold,
        )

    def relevance_of(self, one: Scored) -> float:
        """Return a candidate's relevance to the query."""
        return relevance(
            self.terms,
            self._texts.of(one.record),
            cosine=one.raw.cosine,
            unrelated=self._engines.embedder.unrelated,
        )

    def _yardstick(self) -> Yardstick:
        known = self._statistics or self.legs.statistics
        return Yardstick(
            weight_of(self.terms, known) if known is not None else 0.0,
            self._engines.embedder.unrelated,
            self._settings.weights,
            frozenset(leg for leg, asked in self.legs.asked.items() if asked.can_give_more),
        )

    def _rescore(self) -> None:
        """Score what some leg doesn't hold at its present revision; each record once."""
        todo = [
            (record, current)
            for candidate, record in self.field.live
            if (current := candidate.current(record)) is not candidate.places or candidate.is_tail
            if record.id not in self._rescored
        ]
        if not todo:
            return
        self._rescored.update(record.id for record, _ in todo)
        with self._timed("rescore"):
            self._rescore_words([r for r, current in todo if Leg.KEYWORD not in current])
            self._rescore_meaning([r for r, current in todo if Leg.VECTOR not in current])
            self._rescore_names([r for r, current in todo if Leg.ENTITY not in current])

    def _rescore_words(self, records: Sequence[Record]) -> None:
        if not self.terms or not records:
            return
        texts = {record.id: self._texts.of(record) for record in records}
        known = self.legs.statistics
        if known is None or known.n_docs < len(texts):
            known = self._statistics = rescoring.statistics_of(self.terms, list(texts.values()))
        self._bm25 |= rescoring.bm25_of(self.terms, texts, known)

    def _rescore_meaning(self, records: Sequence[Record]) -> None:
        if not records:
            return
        texts = {record.id: record.text for record in records}
        made = rescoring.cosines_within(
            self._settings.embedding_budget,
            self._pool,
            self.legs.vector,
            self._engines.embedder,
            texts,
        )
        self._cosines |= made
        if len(made) < len(texts):
            self._degraded.append(Degraded(TAIL, Shortfall.TERMS_ONLY))

    def _rescore_names(self, records: Sequence[Record]) -> None:
        factors = [(analysis.terms(f.name), f) for f in self._known_factors()]
        if not factors:
            return
        for record in records:
            if (factor := rescoring.named_in(self._texts.of(record), factors)) is not None:
                self._factors[record.id] = factor

    def _known_factors(self) -> list[EntityFactor]:
        """Return one factor for each name of the query that the entity leg knows."""
        return list({factor.name: factor for factor in self.legs.factors.values()}.values())

    def degraded(self) -> list[Degraded]:
        """Return everything that fell short, each once."""
        return list(dict.fromkeys([*self._degraded, *self.legs.shortfalls]))

    def considered(self, ranked: Ranking, *, fully: bool) -> list[Considered]:
        """Tell of every candidate: live ones in their order, then the dropped ones."""
        live = ranking.explained(
            ranked, self.relevance_of if fully else None, threshold=self.query.threshold
        )
        dead = [ranking.fallen(candidate, reason) for candidate, reason in self.field.dropped]
        return [*live, *dead]

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            with tracing.span(f"search {part}"):
                yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - began
