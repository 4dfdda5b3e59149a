"""What a scrape shows of projections and their shards."""

from dataclasses import replace

import pytest

from canonical.errors import StoreUnavailableError
from canonical.store.projections import ProjectionStatus, ShardStatus
from gnomon.metrics.counters import Metrics
from tests.support.metrics import SHARD, families, projection, value

LABELS = {"projection": "vector", "generation": "2", "state": "live", "shard": "3"}


def scrape(found: ProjectionStatus) -> str:
    metrics = Metrics()
    metrics.watch(lambda: [found])
    return metrics.exposition().decode()


def test_lag_is_told_of_each_shard_in_positions_and_seconds() -> None:
    said = scrape(projection(SHARD, replace(SHARD, shard=4, head=7, waiting_s=None)))
    assert value(said, "gnomon_shard_lag_positions", **LABELS) == 100
    assert value(said, "gnomon_shard_lag_seconds", **LABELS) == 30
    quiet = {**LABELS, "shard": "4"}
    assert value(said, "gnomon_shard_lag_positions", **quiet) == 0
    assert value(said, "gnomon_shard_lag_seconds", **quiet) == 0


@pytest.mark.parametrize(
    ("shard", "paused", "seconds"),
    [
        (SHARD, False, 25),  # the watermark stands for 25 s, the oldest event waits for 30
        (replace(SHARD, moved_s=1.0), False, 1),  # it is behind, and on its way
        (replace(SHARD, waiting_s=2.0, moved_s=3_600.0), False, 2),  # a log that was quiet
        (replace(SHARD, waiting_s=None), False, 0),
        (SHARD, True, 0),
    ],
)
def test_a_stuck_watermark_is_told_apart_from_lag(
    shard: ShardStatus, *, paused: bool, seconds: float
) -> None:
    """A-02, A-13"""
    said = scrape(projection(shard, paused=paused))
    assert value(said, "gnomon_shard_stuck_seconds", **LABELS) == seconds


def test_a_postgres_that_is_away_is_said_and_nothing_is_made_up() -> None:
    def away() -> list[ProjectionStatus]:
        raise StoreUnavailableError("away")

    metrics = Metrics()
    metrics.watch(away)
    said = metrics.exposition().decode()
    assert value(said, "gnomon_postgres_up") == 0
    assert [one.name for one in families(said) if "shard" in one.name] == []
