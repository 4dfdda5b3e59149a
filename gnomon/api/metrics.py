"""What the process counts and times, as Prometheus reads it: no tenant, id or text in a label."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from canonical.errors import StoreUnavailableError
from canonical.store.projections import GenerationStatus, ProjectionStatus
from search.answer import Answer, Degraded

REQUEST_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0)
SEARCH_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)

Status = Callable[[], Sequence[ProjectionStatus]]
Counts = Callable[[], Mapping[str, int]]


class Metrics:
    """Counters of one process; also what a search counts into. Nothing here raises."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Histogram(
            "gnomon_http_request_seconds",
            "Time from the first byte of a request to the answer's being ready.",
            ["route", "status"],
            buckets=REQUEST_S,
            registry=registry,
        )
        self.writes = Counter(
            "gnomon_writes",
            "Memories written, by command, and by outcome: written, replayed or an error's code.",
            ["command", "outcome"],
            registry=registry,
        )
        self.hints = Counter("gnomon_hints", "Hints given to projectors.", registry=registry)
        self.search_seconds = Histogram(
            "gnomon_search_seconds",
            "Time of the parts of a search: legs, tail, recheck, total.",
            ["part"],
            buckets=SEARCH_S,
            registry=registry,
        )
        self.candidates = Counter(
            "gnomon_search_candidates", "Candidates of searches.", registry=registry
        )
        self.dropped = Counter(
            "gnomon_search_dropped",
            "Candidates that the canonical re-check dropped: dead weight of the engines.",
            registry=registry,
        )
        self.refills = Counter(
            "gnomon_search_refills",
            "Rounds that refilled places of the dropped.",
            registry=registry,
        )
        self.shortfalls = Counter(
            "gnomon_search_degraded",
            "Searches that fell short, by part, reason and code.",
            ["leg", "reason", "code"],
            registry=registry,
        )
        self.lost_events = Counter(
            "gnomon_search_diagnostics_lost",
            "Diagnostics events that could not be kept, by code.",
            ["code"],
            registry=registry,
        )

    def watch(self, status: Status) -> None:
        """Show the projections' state as well, read at each scrape."""
        self.registry.register(Projections(status))

    def watch_leases(self, lost: Counts) -> None:
        """Show how many leases this process's loops have lost, by projection, as well."""
        text = "Leases lost to another worker, a shard each: its work was dropped."
        self.registry.register(Counted("gnomon_leases_lost", text, "projection", lost))

    def watch_chores(self, failed: Counts) -> None:
        """Show how often this process's chores have failed as well."""
        text = "Failures of a chore, such as forgetting old keys: it is tried again in a minute."
        self.registry.register(Counted("gnomon_chore_failures", text, "chore", failed))

    def exposition(self) -> bytes:
        """Return everything in Prometheus's text format."""
        return generate_latest(self.registry)

    def wrote(self, command: str, outcome: str, count: int = 1) -> None:
        """Count written or refused memories."""
        if count:
            self.writes.labels(command, outcome).inc(count)

    def searched(self, answer: Answer, *, candidates: int, dropped: int, rounds: int) -> None:
        """Count a search."""
        self.candidates.inc(candidates)
        self.dropped.inc(dropped)
        self.refills.inc(max(0, rounds - 1))
        for part, seconds in answer.seconds.items():
            self.search_seconds.labels(part).observe(seconds)

    def degraded(self, shortfall: Degraded) -> None:
        """Count a part of a search that fell short."""
        reason, code = shortfall.reason.value, shortfall.code or ""
        self.shortfalls.labels(shortfall.leg, reason, code).inc()

    def diagnostics_lost(self, code: str) -> None:
        """Count a diagnostics event that could not be kept."""
        self.lost_events.labels(code).inc()


class Counted(Collector):
    """What parts of this process count themselves since its start, by one label."""

    def __init__(self, name: str, text: str, label: str, counts: Counts) -> None:
        self._name, self._text, self._label, self._counts = name, text, label, counts

    # typing has `override` from Python 3.12 on.
    def collect(self) -> Iterator[Metric]:  # type: ignore[explicit-override]
        """Read the counts."""
        family = CounterMetricFamily(self._name, self._text, labels=[self._label])
        for one, count in self._counts().items():
            family.add_metric([one], count)
        yield family


class Projections(Collector):
    """The projections' state at the moment of a scrape."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def describe(self) -> Iterable[Metric]:
        """Return what will be collected, without reading anything."""
        return ()

    # typing has `override` from Python 3.12 on.
    def collect(self) -> Iterator[Metric]:  # type: ignore[explicit-override]
        """Read the state; when Postgres doesn't answer, say that alone."""
        up = GaugeMetricFamily("gnomon_postgres_up", "Whether Postgres answered this scrape.")
        try:
            projections = self._status()
        except StoreUnavailableError:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        yield self._paused(projections)
        yield from self._generations(projections)

    def _paused(self, projections: Sequence[ProjectionStatus]) -> Metric:
        family = GaugeMetricFamily(
            "gnomon_projection_paused", "Whether it is paused.", labels=["projection"]
        )
        for projection in projections:
            family.add_metric([projection.name], projection.paused)
        return family

    def _generations(self, projections: Sequence[ProjectionStatus]) -> Iterator[Metric]:
        for name, (text, value) in FIGURES.items():
            family = GaugeMetricFamily(name, text, labels=["projection", "generation", "state"])
            for projection in projections:
                for one in projection.generations:
                    labels = [projection.name, str(one.generation), one.state]
                    family.add_metric(labels, value(one))
            yield family


FIGURES: dict[str, tuple[str, Callable[[GenerationStatus], float]]] = {
    "gnomon_projection_lag_positions": (
        "Positions that a generation is behind the log.",
        lambda one: one.lag,
    ),
    "gnomon_projection_lag_seconds": (
        "Age of the oldest event that it has not applied; 0: none waits.",
        lambda one: one.waiting_s or 0.0,
    ),
    "gnomon_projection_parked": ("Memories that are parked.", lambda one: one.parked),
    "gnomon_projection_halted_shards": (
        "Shards that stopped because an invariant broke.",
        lambda one: sum(shard.halted for shard in one.shards),
    ),
    "gnomon_projection_held_shards": (
        "Shards that don't go on for now: an engine or a model is away.",
        lambda one: sum(shard.held_s is not None and not shard.halted for shard in one.shards),
    ),
}
