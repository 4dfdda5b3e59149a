"""What a scrape shows beside the counters of requests."""

from gnomon.api.metrics import Metrics


def test_lost_leases_are_read_at_each_scrape() -> None:
    """O-08: a loss is counted where an operator looks."""
    metrics, lost = Metrics(), {"vector": 0, "audit": 2}
    metrics.watch_leases(lambda: lost)
    assert b'gnomon_leases_lost_total{projection="audit"} 2.0' in metrics.exposition()
    lost["vector"] = 16
    assert b'gnomon_leases_lost_total{projection="vector"} 16.0' in metrics.exposition()


def test_failed_chores_are_read_at_each_scrape() -> None:
    metrics, failed = Metrics(), {"purge": 0}
    metrics.watch_chores(lambda: failed)
    assert b'gnomon_chore_failures_total{chore="purge"} 0.0' in metrics.exposition()
    failed["purge"] = 3
    assert b'gnomon_chore_failures_total{chore="purge"} 3.0' in metrics.exposition()
