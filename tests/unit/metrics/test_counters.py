"""What a scrape shows of searches, hints and loops."""

from uuid import UUID

from gnomon.metrics.counters import Metrics
from search.answer import Answer, Degraded, Shortfall
from tests.support.metrics import told, value
from workers.counts import Counts, total


def scrape(metrics: Metrics) -> str:
    return metrics.exposition().decode()


def test_the_loops_of_a_process_are_read_at_each_scrape() -> None:
    """O-08: a loss is counted where an operator looks."""
    one, two = Counts(leases_lost=2, done=5, stale=1), Counts(leases_lost=1, refused=3, again=4)
    metrics = Metrics()
    metrics.watch_loops(lambda: {"audit": {**total([one, two]), "failing": 7}})
    assert value(scrape(metrics), "gnomon_leases_lost_total", projection="audit") == 3
    two.leases_lost += 16
    said = scrape(metrics)
    assert value(said, "gnomon_leases_lost_total", projection="audit") == 19
    assert value(said, "gnomon_loop_failing", projection="audit") == 7
    written = {
        outcome: value(said, "gnomon_engine_writes_total", projection="audit", outcome=outcome)
        for outcome in ("done", "stale", "refused", "again")
    }
    assert written == {"done": 5, "stale": 1, "refused": 3, "again": 4}


def test_failed_chores_are_read_at_each_scrape() -> None:
    metrics, failed = Metrics(), {"purge": 0}
    metrics.watch_chores(lambda: failed)
    assert value(scrape(metrics), "gnomon_chore_failures_total", chore="purge") == 0
    failed["purge"] = 3
    assert value(scrape(metrics), "gnomon_chore_failures_total", chore="purge") == 3


def test_a_leg_that_gave_nothing_took_no_time_that_says_anything() -> None:
    """A dead engine must not make the legs look fast."""
    metrics = Metrics()
    failed = Degraded("vector", Shortfall.FAILED, "engine_unavailable")
    lagging = Degraded("keyword", Shortfall.LAGGING)
    seconds = {"vector": 0.0, "keyword": 0.2, "total": 0.3}
    answer = Answer(query_id=UUID(int=1), degraded=[failed, lagging], seconds=seconds)
    metrics.searched(answer, candidates=1, dropped=0, rounds=1)
    said = scrape(metrics)
    assert value(said, "gnomon_search_seconds_count", part="vector") is None
    assert value(said, "gnomon_search_seconds_count", part="keyword") == 1
    assert value(said, "gnomon_search_seconds_count", part="total") == 1


def test_answers_are_counted_by_whether_they_are_whole() -> None:
    metrics = Metrics()
    short = Degraded("vector", Shortfall.TOO_LATE)
    for degraded in ([], [short, short], []):
        answer = Answer(query_id=UUID(int=1), degraded=degraded)
        metrics.searched(answer, candidates=0, dropped=0, rounds=1)
    said = scrape(metrics)
    assert value(said, "gnomon_search_answers_total", answer="whole") == 2
    assert value(said, "gnomon_search_answers_total", answer="degraded") == 1


def test_what_an_alert_takes_the_rate_of_is_there_before_it_first_happens() -> None:
    said = scrape(Metrics())
    assert value(said, "gnomon_hints_total", outcome="lost") == 0
    assert value(said, "gnomon_search_answers_total", answer="degraded") == 0


def test_hints_are_counted_by_what_became_of_them() -> None:
    metrics = Metrics()
    metrics.hinted("lost", 3)
    assert value(scrape(metrics), "gnomon_hints_total", outcome="lost") == 3


def test_a_process_tells_its_memory_its_time_and_its_open_files() -> None:
    names = {"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"}
    assert told(Metrics()).keys() >= names
