from dataclasses import replace
from datetime import timedelta

import pytest

from canonical.errors import PositionGapError
from canonical.store.projections import GenerationStatus, ProjectionStatus, ShardStatus
from gnomon.api.health import standing_still

AFTER = timedelta(seconds=20)
QUIET = ShardStatus(
    shard=3,
    pos=7,
    head=7,
    leased=True,
    halted=False,
    error_code=None,
    error=None,
    held_s=None,
    moved_s=3_600.0,
    waiting_s=None,
    parked=0,
)
STUCK = replace(QUIET, head=107, waiting_s=25.0, moved_s=25.0)


def found(shard: ShardStatus, state: str = "live", *, paused: bool = False) -> list[str]:
    projection = ProjectionStatus(
        "vector", paused, (GenerationStatus(2, state, None, (replace(QUIET, shard=1), shard)),)
    )
    return [f"{one.part}: {one.problem}" for one in standing_still([projection], AFTER)]


def test_a_quiet_log_is_well_however_long_it_is_quiet() -> None:
    """A-13"""
    assert found(QUIET) == []


def test_a_head_that_moved_and_a_watermark_that_did_not_are_named_with_their_shard() -> None:
    """A-02"""
    said = (
        "vector generation 2 shard 3: 100 positions wait, the oldest for 25 s, and the watermark "
        "stands for 25 s"
    )
    assert found(STUCK) == [said]
    held = replace(STUCK, error_code="engine_unavailable")
    assert found(held)[0].endswith("stands for 25 s (engine_unavailable)")


@pytest.mark.parametrize(
    "shard",
    [
        replace(STUCK, waiting_s=400.0, moved_s=0.5),  # far behind, and catching up
        replace(STUCK, waiting_s=0.5, moved_s=9_000.0),  # the first event after a quiet day
        replace(STUCK, waiting_s=19.9, moved_s=19.9),
    ],
)
def test_work_that_goes_on_is_well(shard: ShardStatus) -> None:
    """A-02, A-13: neither age alone tells that nothing moves."""
    assert found(shard) == []


def test_a_halted_shard_is_named_at_once_and_while_paused() -> None:
    """O-03: with the place; the error's text may name a record and is for administrators."""
    halted = replace(QUIET, halted=True, error_code="position_gap")
    assert found(halted) == found(halted, paused=True) != []
    at = "shard 3: halted at position 8: position_gap. "
    assert found(halted)[0].endswith(at + PositionGapError.hint)


def test_a_pause_is_somebodys_wish_and_what_is_being_built_serves_nothing() -> None:
    assert found(STUCK, paused=True) == []
    assert found(STUCK, "building") == []


def test_a_lost_index_and_a_projection_without_any_are_named() -> None:
    """A-02"""
    assert found(QUIET, "lost") == ["vector generation 2: lost: its index is gone or unreadable"]
    missing = ProjectionStatus("audit", paused=False, generations=())
    assert [one.part for one in standing_still([missing], AFTER)] == ["audit"]


@pytest.mark.parametrize(("later", "is_well"), [("live", True), ("building", False)])
def test_a_lost_index_is_missed_until_a_later_one_serves(later: str, *, is_well: bool) -> None:
    """O-12: it stays lost for good, and the one that was built in its place is what counts."""
    lost, later_one = (GenerationStatus(n, s, None, (QUIET,)) for n, s in ((1, "lost"), (2, later)))
    both = ProjectionStatus("vector", paused=False, generations=(lost, later_one))
    assert [one.part for one in standing_still([both], AFTER)] == (
        [] if is_well else ["vector generation 1"]
    )
