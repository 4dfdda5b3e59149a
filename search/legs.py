"""Asking the readers: all at once, each within its budget, each failure named and none raised."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from datetime import timedelta
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from canonical import tracing
from canonical.errors import GnomonError, PoisonError
from inference.protocols import Embedder
from projectors.keyword.relevance import Statistics
from search.answer import Degraded, EntityFactor, Leg, Shortfall
from search.ports import Engines, Seen
from search.query import Query

log = logging.getLogger(__name__)

Found = Sequence[Seen]
Vector = NDArray[np.float32]


class Asked:
    """One leg of one search: what it was asked, what it gave, what went wrong."""

    def __init__(self, leg: Leg, find: Callable[[int], Found]) -> None:
        self.leg = leg
        self.hits: Found = ()
        self.limit = 0
        self.shortfall: Degraded | None = None
        self.seconds = 0.0
        self._find = find

    @property
    def can_give_more(self) -> bool:
        """Tell whether a higher limit may bring more."""
        return self.shortfall is None and len(self.hits) >= self.limit

    def find(self, limit: int) -> tuple[Found, float]:
        """Ask the reader; return what it gave and how long it took."""
        began = time.perf_counter()
        with tracing.span(f"search {self.leg}", {"gnomon.limit": limit}):
            found = self._find(limit)
        return found, time.perf_counter() - began

    def settle(self, future: "Future[tuple[Found, float]]", limit: int, deadline: float) -> None:
        """Wait for the leg until `deadline`; keep what it gave, or name what went wrong."""
        try:
            error = future.exception(max(deadline - time.monotonic(), 0.0))
        except TimeoutError:
            future.cancel()
            self.shortfall = Degraded(self.leg, Shortfall.TOO_LATE)
            return
        if error is not None:
            self.shortfall = Degraded(self.leg, Shortfall.FAILED, code_of(error))
            if not isinstance(error, GnomonError):
                log.error("the %s leg raised what it should not", self.leg, exc_info=error)
            return
        self.hits, seconds = future.result()
        self.limit = limit
        self.seconds += seconds


def code_of(error: BaseException) -> str:
    """Return an error's stable code; `error` for one that is not ours."""
    return error.code if isinstance(error, GnomonError) else GnomonError.code


class QueryVector:
    """The query's vector: made once, by whoever needs it first."""

    def __init__(self, embedder: Embedder, text: str) -> None:
        self._embedder, self._text = embedder, text
        self.value: Vector | None = None

    def get(self) -> Vector:
        """Return it.

        Raises: ModelUnavailableError, ModelRefusedError.
        """
        if self.value is None:
            (made,) = self._embedder.embed([self._text])
            if isinstance(made, PoisonError):
                raise made
            self.value = made
        return self.value


class Legs:
    """The legs of one search.

    `statistics` is there once the keyword leg has answered, `names` and `factors` (what a shared
    name adds to a memory) once the entity leg has.
    """

    def __init__(
        self, engines: Engines, query: Query, terms: Sequence[str], budget: timedelta
    ) -> None:
        self._engines, self._query, self._terms, self._budget = engines, query, terms, budget
        self.vector = QueryVector(engines.embedder, query.text)
        self.names: Sequence[str] = ()
        self.statistics: Statistics | None = None
        self.factors: dict[UUID, EntityFactor] = {}
        self.asked: dict[Leg, Asked] = {}
        self._generations: Mapping[Leg, int] = {}

    def prepare(self, serving: Mapping[Leg, int]) -> None:
        """Choose the legs to ask, each with the generation that serves."""
        self._generations = serving
        find: Mapping[Leg, Callable[[int], Found]] = {
            Leg.VECTOR: self._nearest,
            Leg.KEYWORD: self._best,
            Leg.ENTITY: self._linked,
        }
        self.asked = {leg: Asked(leg, find[leg]) for leg in serving}

    def start(self, pool: Executor, limit: int) -> Callable[[], None]:
        """Ask every leg that may have more for `limit` hits; return how to wait for them."""
        deadline = time.monotonic() + self._budget.total_seconds()
        begun = [
            (asked, pool.submit(tracing.carried(asked.find), limit))
            for asked in self.asked.values()
            if asked.can_give_more
        ]

        def wait() -> None:
            for asked, future in begun:
                asked.settle(future, limit, deadline)

        return wait

    @property
    def can_give_more(self) -> bool:
        """Tell whether some leg may have more."""
        return any(asked.can_give_more for asked in self.asked.values())

    @property
    def shortfalls(self) -> list[Degraded]:
        """Return what went wrong."""
        return [a.shortfall for a in self.asked.values() if a.shortfall is not None]

    def _nearest(self, limit: int) -> Found:
        reader = self._engines.vector(self._generations[Leg.VECTOR])
        return reader.nearest(
            self.vector.get(), visible=self._query.visible, limit=limit, timeout=self._budget
        )

    def _best(self, limit: int) -> Found:
        if not self._terms:
            return ()
        visible = self._query.visible
        words = self._engines.keyword(self._generations[Leg.KEYWORD])
        if self.statistics is None:
            self.statistics = words.statistics(self._terms, tenant=visible.scope.tenant)
        return words.best(self._terms, visible=visible, limit=limit, timeout=self._budget)

    def _linked(self, limit: int) -> Found:
        reader = self._engines.entity(self._generations[Leg.ENTITY])
        if not self.names:
            self.names = reader.names_in(self._query.text)
        if not self.names:
            return ()
        linked = reader.linked(self.names, self._query.visible, limit)
        for hit in linked:
            held = self.factors.get(hit.memory_id)
            if held is None or hit.score > held.boost:
                self.factors[hit.memory_id] = EntityFactor(
                    hit.name, hit.similarity, hit.degree, hit.score
                )
        return linked
