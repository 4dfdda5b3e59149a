"""Every metric that a process can tell, each with a sample; and a scrape to ask questions of."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from canonical.store.projections import GenerationStatus, ProjectionStatus, ShardStatus
from gnomon.metrics.counters import Metrics
from search.answer import Answer, Degraded, Shortfall
from workers.counts import Counts, total

SHARD = ShardStatus(
    shard=3,
    pos=7,
    head=107,
    leased=True,
    halted=False,
    error_code=None,
    error=None,
    held_s=None,
    moved_s=25.0,
    waiting_s=30.0,
    parked=0,
)


def projection(*shards: ShardStatus, paused: bool = False) -> ProjectionStatus:
    return ProjectionStatus("vector", paused, (GenerationStatus(2, "live", None, shards),))


def filled() -> Metrics:
    """Return metrics in which everything has been counted once."""
    metrics = Metrics()
    metrics.requests.labels("/v1/search", 200).observe(0.1)
    metrics.wrote("add", "written")
    shortfall = Degraded("vector", Shortfall.FAILED, "engine_unavailable")
    answer = Answer(query_id=UUID(int=1), degraded=[shortfall], seconds={"total": 0.1})
    metrics.searched(answer, candidates=10, dropped=1, rounds=2)
    metrics.degraded(shortfall)
    metrics.diagnostics_lost("error")
    metrics.watch(lambda: [projection(SHARD)])
    metrics.watch_loops(lambda: {"vector": {**total([Counts()]), "failing": 0}})
    metrics.watch_connections({"api": lambda: (1, 2, 20)})
    metrics.watch_chores(lambda: {"purge": 0})
    return metrics


@dataclass(frozen=True)
class Told:
    """A metric as it is scraped."""

    kind: str
    labels: frozenset[str]
    series: frozenset[str]  # what a query may name


def told(metrics: Metrics) -> dict[str, Told]:
    """Return every metric by its name, a counter's with its ending."""
    found = families(metrics.exposition().decode())
    # `_created` is the client library's own.
    return {named(one): _told(one) for one in found if not one.name.endswith("_created")}


def families(exposition: str) -> Iterable[Metric]:
    found: Iterable[Metric] = text_string_to_metric_families(exposition)
    return found


def named(one: Metric) -> str:
    return f"{one.name}_total" if one.type == "counter" else str(one.name)


def _told(one: Metric) -> Told:
    samples = [sample for sample in one.samples if not sample.name.endswith("_created")]
    labels = {label for sample in samples for label in sample.labels}
    return Told(one.type, frozenset(labels - {"le"}), frozenset(sample.name for sample in samples))


def value(exposition: str, name: str, **labels: str) -> float | None:
    """Return one sample of a scrape."""
    for family in families(exposition):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
    return None
