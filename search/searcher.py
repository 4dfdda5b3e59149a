"""A search from the query to the answer."""

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from canonical import tracing
from canonical.domain.ids import new_id
from canonical.domain.visibility import DropReason
from search.answer import Answer, Considered, Hit
from search.diagnostics import Diagnostics
from search.health import Marks
from search.metrics import NoMetrics, SearchMetrics
from search.ports import Engines
from search.query import Query
from search.ranking import Ranking
from search.run import Run
from search.settings import SearchSettings

SCOPE_COUNT_LIMIT = 10_000
# Not the caller's to know. A record that this tenant hasn't got may be another one's.
UNTOLD = (DropReason.FOREIGN, DropReason.MISSING)


class Searcher:
    """Answers searches, any number at a time. Close it at the end."""

    def __init__(
        self,
        engines: Engines,
        settings: SearchSettings | None = None,
        *,
        metrics: SearchMetrics | None = None,
        diagnostics: Diagnostics | None = None,
    ) -> None:
        self._engines = engines
        self._settings = settings or SearchSettings()
        self._metrics = metrics or NoMetrics()
        self._diagnostics = diagnostics
        self._marks = Marks(engines.canonical, self._settings.marks_max_age)
        self._pool = ThreadPoolExecutor(self._settings.threads, thread_name_prefix="search")

    def close(self) -> None:
        """Take no more searches; a leg that still hangs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def search(self, query: Query) -> Answer:
        """Find the memories that answer `query`.

        Guarantee: every hit may be shown to `query.visible` by the canonical state read for this
                   search, and carries its canonical text, scored by it. What was acknowledged
                   before the search began is found, projected or not, up to `tail_limit`. Places
                   of dropped candidates are refilled until `top_k`, or until the legs give no more
                   or the rounds are used up. A leg that fails, is late or lags is named in
                   `degraded`; an engine's or a model's failure is never raised.
        Raises:    StoreUnavailableError, when Postgres doesn't answer.
        Cost:      legs and tail at once, then one read by id; one more of both for each refill.
        """
        query_id = new_id()
        tracing.note("query_id", str(query_id))
        if query.top_k < 1:
            return Answer(query_id=query_id)
        with tracing.span("search", {"gnomon.query_id": str(query_id)}) as span:
            answer = self._found(query_id, query)
            span.set_attribute("gnomon.degraded", bool(answer.degraded))
        return answer

    def _found(self, query_id: UUID, query: Query) -> Answer:
        began = time.perf_counter()
        run = Run(query, self._engines, self._settings, self._pool)
        run.start(self._marks.recent())
        ranked = run.finish()
        answer = self._answer(query_id, run, ranked, began)
        self._count(answer, run)
        return answer

    def _answer(self, query_id: UUID, run: Run, ranked: Ranking, began: float) -> Answer:
        query = run.query
        told = self._note(query_id, run, ranked)
        by_id = {one.memory_id: one for one in told} if query.explain else {}
        hits = [
            Hit(one.record, one.score, ranked.relevances[one.record.id], by_id.get(one.record.id))
            for one in ranked.chosen
        ]
        scope = query.visible.scope
        legs = {leg.value: asked.seconds for leg, asked in run.legs.asked.items()}
        return Answer(
            query_id=query_id,
            hits=hits,
            degraded=run.degraded(),
            scope_records=None
            if hits
            else self._engines.canonical.scope_count(scope, SCOPE_COUNT_LIMIT),
            considered=told,
            seconds={**legs, **run.seconds, "total": time.perf_counter() - began},
        )

    def _note(self, query_id: UUID, run: Run, ranked: Ranking) -> list[Considered]:
        """Tell the diagnostics; return what the caller may know, if the query asks for it."""
        told = run.considered(ranked, fully=True) if run.query.explain else []
        if self._diagnostics is not None:
            sampled = self._diagnostics.wants()
            self._diagnostics.note(
                self._pool,
                (run.query.visible.scope.tenant, query_id),
                lambda: told or run.considered(ranked, fully=sampled),
                sampled=sampled,
            )
        return [one for one in told if one.dropped not in UNTOLD]

    def _count(self, answer: Answer, run: Run) -> None:
        for shortfall in answer.degraded:
            self._metrics.degraded(shortfall)
        self._metrics.searched(
            answer,
            candidates=len(run.field.candidates),
            dropped=len(run.field.dropped),
            rounds=run.rounds,
        )
