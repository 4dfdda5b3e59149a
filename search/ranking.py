"""Which live candidates are hits, in which order, and how each came to its place: pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from canonical.domain.records import Record
from canonical.domain.values import value_object
from canonical.domain.visibility import DropReason
from search.answer import (
    BELOW_THRESHOLD,
    BEYOND_TOP_K,
    TAIL,
    Considered,
    EntityFactor,
    Leg,
    LegScore,
)
from search.candidates import Candidate, Places
from search.fusion import Scale, Shares, Weights, fuse, keyword_scale, vector_scale

EQUAL: Final = 6  # decimals: beyond lies how an engine rounds and quantises


@dataclass(frozen=True, slots=True)
class Rescored:
    """What was scored here, because a leg doesn't hold the record's present revision."""

    keyword: Mapping[UUID, float] = field(default_factory=dict)
    vector: Mapping[UUID, float] = field(default_factory=dict)
    entity: Mapping[UUID, EntityFactor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What scores of one query are measured by.

    query_weight: see fusion.weight_of. cut: the legs that had more than they were asked for.
    """

    query_weight: float
    unrelated: float
    weights: Weights
    cut: frozenset[Leg] = frozenset()


@value_object
class Raw:
    """What the legs say of a live candidate's present revision, and of nothing older.

    places: of the legs that saw this revision.
    """

    candidate: Candidate
    record: Record
    places: Places
    bm25: float | None
    cosine: float | None
    factor: EntityFactor | None


@value_object
class Scored:
    """A live candidate with the score that its raw scores make."""

    raw: Raw
    shares: Shares
    score: float

    @property
    def record(self) -> Record:
        """Return the record."""
        return self.raw.record


def raw(
    candidate: Candidate,
    record: Record,
    rescored: Rescored,
    factors: Mapping[UUID, EntityFactor],
) -> Raw:
    """Collect what is true of a candidate's present revision."""
    places = candidate.current(record)
    words, meaning = places.get(Leg.KEYWORD), places.get(Leg.VECTOR)
    known = factors if Leg.ENTITY in places else rescored.entity
    return Raw(
        candidate,
        record,
        places,
        rescored.keyword.get(record.id) if words is None else words.score,
        rescored.vector.get(record.id) if meaning is None else meaning.score,
        known.get(record.id),
    )


def score(raws: Sequence[Raw], by: Yardstick) -> list[Scored]:
    """Score candidates against each other: a score is a place in the range of each leg."""
    words = keyword_scale(
        (r.bm25 for r in raws if r.bm25 is not None),
        cut=Leg.KEYWORD in by.cut,
        most=by.query_weight,
    )
    meaning = vector_scale(
        (r.cosine for r in raws if r.cosine is not None),
        cut=Leg.VECTOR in by.cut,
        unrelated=by.unrelated,
    )
    names = Scale(0.0, 1.0)
    scored = []
    for one in raws:
        boost = one.factor.boost if one.factor is not None else None
        shares = Shares(words.share(one.bm25), meaning.share(one.cosine), names.share(boost))
        scored.append(Scored(one, shares, fuse(shares, by.weights)))
    return scored


@dataclass(frozen=True, slots=True)
class Ranking:
    """Live candidates in their order. `relevances`: of those where it was needed."""

    order: Sequence[Scored]
    chosen: Sequence[Scored]
    relevances: Mapping[UUID, float]


def rank(
    scored: Sequence[Scored],
    relevance_of: Callable[[Scored], float],
    *,
    verbatim: str,
    top_k: int,
    threshold: float,
) -> Ranking:
    """Order candidates by score and choose the first `top_k` that are relevant enough.

    Of equals, the one whose text is `verbatim` comes first: no leg tells the order of words.
    Guarantee: the same candidates give the same order, whatever order they come in.
    """

    def place(one: Scored) -> tuple[float, bool, UUID]:
        return -round(one.score, EQUAL), one.record.text != verbatim, one.record.id

    order = sorted(scored, key=place)
    chosen: list[Scored] = []
    relevances: dict[UUID, float] = {}
    for one in order:
        if len(chosen) == top_k:
            break
        relevances[one.record.id] = found = relevance_of(one)
        if found >= threshold:
            chosen.append(one)
    return Ranking(order, chosen, relevances)


def explained(
    ranking: Ranking, relevance_of: Callable[[Scored], float] | None, *, threshold: float
) -> list[Considered]:
    """Tell of every live candidate how it came to its place, the first ones first.

    Without `relevance_of`, relevance is told only of those where it was needed.
    """
    chosen = {one.record.id for one in ranking.chosen}
    told: list[Considered] = []
    for place, one in enumerate(ranking.order, start=1):
        found = ranking.relevances.get(one.record.id)
        if found is None and relevance_of is not None:
            found = relevance_of(one)
        dropped = None
        if one.record.id not in chosen:
            is_below = found is not None and found < threshold
            dropped = BELOW_THRESHOLD if is_below else BEYOND_TOP_K
        told.append(_live(one, place, found, dropped))
    return told


def _live(one: Scored, place: int, relevance: float | None, dropped: str | None) -> Considered:
    raw, shares, places = one.raw, one.shares, one.raw.places
    legs: dict[Leg, LegScore] = {}
    if raw.cosine is not None:
        legs[Leg.VECTOR] = LegScore(_rank(places, Leg.VECTOR), raw.cosine, shares.vector)
    if raw.bm25 is not None:
        legs[Leg.KEYWORD] = LegScore(_rank(places, Leg.KEYWORD), raw.bm25, shares.keyword)
    if raw.factor is not None:
        legs[Leg.ENTITY] = LegScore(_rank(places, Leg.ENTITY), raw.factor.boost, shares.entity)
    return Considered(
        memory_id=raw.record.id,
        version=raw.record.version,
        scope_match=True,
        sources=sources(raw.candidate),
        legs=legs,
        entity=raw.factor,
        tail=raw.candidate.is_tail,
        rescored=raw.candidate.is_tail or places is not raw.candidate.places,
        relevance=relevance,
        score=one.score,
        rank=place,
        dropped=dropped,
    )


def _rank(places: Places, leg: Leg) -> int | None:
    place = places.get(leg)
    return None if place is None else place.rank


def fallen(candidate: Candidate, reason: DropReason) -> Considered:
    """Tell of a candidate that may not be shown what the legs said of it."""
    record = candidate.record
    return Considered(
        memory_id=candidate.memory_id,
        version=record.version if record is not None else None,
        scope_match=reason is not DropReason.FOREIGN if record is not None else None,
        sources=sources(candidate),
        legs={
            leg: LegScore(place.rank, place.score, 0.0) for leg, place in candidate.places.items()
        },
        tail=candidate.is_tail,
        dropped=reason.value,
    )


def sources(candidate: Candidate) -> tuple[str, ...]:
    """Return where a candidate came from."""
    return (*candidate.places, TAIL) if candidate.is_tail else tuple(candidate.places)
