"""The loop that all projections share: claim, read a page, apply it, move the watermarks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from canonical import tracing
from canonical.domain.log import CAUTIOUS_AFTER, PARK_AFTER
from canonical.errors import HaltError, PoisonError, PositionGapError, WorkersEndedError
from projectors import isolation
from projectors.protocol import Applied, Event, Feed, Lease, Page, Projector, Reading, Step

RETRIES = 50  # parked memories tried again in one go

At = Callable[[Step], None]


def ignore(_step: Step) -> None:
    """Do nothing at a step; tests die there instead."""


class Writes(NamedTuple):
    """What became of a page's memories: written, the engine was past them, or refused and parked.

    `again`: writes that an engine took only when they were sent once more.
    """

    done: int = 0
    stale: int = 0
    refused: int = 0
    again: int = 0


NO_WRITES = Writes()


@dataclass(frozen=True, slots=True)
class Progress:
    """What one pass did."""

    leases: list[Lease]  # at their new watermarks; shards that halted are gone
    events: int
    halted: dict[int, HaltError]
    writes: Writes = NO_WRITES


def run_page(
    feed: Feed,
    projector: Projector,
    leases: Sequence[Lease],
    *,
    limit: int,
    isolate: bool = False,
    at: At = ignore,
) -> Progress:
    """Apply the next page of some shards and record how far they came.

    Guarantee: in position order, at least once; a shard with a hole or a repeat stops, the others
               go on. A crash at any step repeats the page; `apply` is idempotent by (memory id,
               rev), so a repeat is harmless. The watermarks move only once every event is done or
               its memory parked. `isolate`: pages have failed in a way that nobody foresaw; a
               memory that does so alone, while others go through, is parked with its error.
    Raises:    TransientError: nothing moved, hold and try again. LeaseLostError: drop the leases.
               HaltError: the engine broke an invariant, all shards stop. Anything else: unforeseen,
               nothing moved.
    """
    reading = feed.read(leases, limit=page_limit(leases, limit))
    sound, halted = dense(reading, leases)
    events = [event for event in reading.events if event.shard not in halted]
    if not events:
        return Progress(sound, 0, halted)
    at(Step.PAGE_READ)
    with tracing.page("project page", _facts(sound[0], events), (e.trace for e in events)):
        page = feed.page(events)
        with tracing.span("write engine"):
            applied = (_isolated if isolate else _apply)(feed, projector, page, sound)
        at(Step.PAGE_APPLIED)
        touched = {mark.shard for mark in page.marks}
        moved = feed.advance([lease for lease in sound if lease.shard in touched], page, applied)
        at(Step.WATERMARK_MOVED)
    idle = [lease for lease in sound if lease.shard not in touched]
    return Progress([*moved, *idle], len(events), halted, _writes(page, applied))


def _writes(page: Page, applied: Applied) -> Writes:
    refused, stale = len(applied.refused), applied.stale
    return Writes(len(page.records) - refused - stale, stale, refused, applied.again)


def _facts(lease: Lease, events: Sequence[Event]) -> dict[str, str | int]:
    """Return what the span of a page says of it."""
    return {
        "gnomon.projection": lease.projection,
        "gnomon.generation": lease.generation,
        "gnomon.events": len(events),
    }


def _apply(_feed: Feed, projector: Projector, page: Page, leases: Sequence[Lease]) -> Applied:
    """Apply a page; a memory whose handling killed its workers again and again is parked."""
    deadly = {lease.shard for lease in leases if lease.attempts > PARK_AFTER}
    if not deadly:
        return projector.apply(page)
    first = {e.memory_id for e in page.events if e.shard in deadly}
    ended = WorkersEndedError(f"its shard was taken more than {PARK_AFTER} times without an end")
    return _apply_others(projector, page, dict.fromkeys(first, ended))


def _isolated(feed: Feed, projector: Projector, page: Page, leases: Sequence[Lease]) -> Applied:
    """Apply a page without the memories that fail by themselves."""

    def attempt(ids: Iterable[UUID]) -> None:
        _rehearse(feed, projector, leases, _part(page, ids))

    return _apply_others(projector, page, isolation.culprits(attempt, list(page.records)))


def _apply_others(projector: Projector, page: Page, refused: Mapping[UUID, PoisonError]) -> Applied:
    others = {i: record for i, record in page.records.items() if i not in refused}
    applied = projector.apply(replace(page, records=others))
    return replace(applied, refused={**applied.refused, **refused})


def _part(page: Page, ids: Iterable[UUID]) -> Page:
    """Return a page of some of the memories. It has no marks: the engine isn't past the others."""
    return replace(page, events=(), marks=(), records={i: page.records[i] for i in ids})


def _rehearse(feed: Feed, projector: Projector, leases: Sequence[Lease], page: Page) -> None:
    applied = projector.apply(page)
    if applied.in_transaction is not None:
        feed.rehearse(leases, applied)


def page_limit(leases: Sequence[Lease], limit: int) -> int:
    """Return how many events to read: one a shard where workers have died."""
    cautious = any(lease.attempts > CAUTIOUS_AFTER for lease in leases)
    return len(leases) if cautious else limit


def retry_parked(feed: Feed, projector: Projector, leases: Sequence[Lease]) -> int:
    """Try parked memories again whose next try has come, on their newest state.

    Guarantee: one success clears all that piled up; watermarks are not touched. What fails, also
               in a way that nobody foresaw, stays parked with its newest error and backs off.
    Returns:   how many were tried.
    """
    due = feed.due(leases, limit=RETRIES)
    if due:
        shards = {one.shard for one in due}
        mine = [lease for lease in leases if lease.shard in shards]
        page = feed.retry_page(due)
        if isolation.failure(lambda: feed.settle(mine, due, projector.apply(page))) is not None:
            failed = _failing_alone(feed, projector, mine, page)
            feed.settle(mine, due, _apply_others(projector, page, failed))
    return len(due)


def _failing_alone(
    feed: Feed, projector: Projector, leases: Sequence[Lease], page: Page
) -> dict[UUID, PoisonError]:
    """Try each memory by itself: they are parked already, so none is parked wrongly."""
    failed = {}
    for one in page.records:
        alone = _part(page, [one])
        error = isolation.failure(lambda alone=alone: _rehearse(feed, projector, leases, alone))  # type: ignore[misc]
        if error is not None:
            failed[one] = isolation.poison(error)
    return failed


def dense(reading: Reading, leases: Sequence[Lease]) -> tuple[list[Lease], dict[int, HaltError]]:
    """Tell sound shards from those whose positions have a hole or a repeat after the watermark.

    Positions are dense by construction, so this is arithmetic: nothing depends on a time.
    """
    by_shard: dict[int, list[Event]] = {lease.shard: [] for lease in leases}
    for event in reading.events:
        by_shard[event.shard].append(event)
    halted: dict[int, HaltError] = {}
    for lease in leases:
        head = reading.heads.get(lease.shard, 0)
        if (gap := _gap(lease, by_shard[lease.shard], head)) is not None:
            halted[lease.shard] = gap
    return [lease for lease in leases if lease.shard not in halted], halted


def _gap(lease: Lease, events: Sequence[Event], head: int) -> PositionGapError | None:
    expected = lease.watermark + 1
    for event in events:
        if event.pos != expected:
            return PositionGapError(lease.shard, expected, event.pos)
        expected += 1
    if not events and head > lease.watermark:
        return PositionGapError(lease.shard, expected, None)
    return None
