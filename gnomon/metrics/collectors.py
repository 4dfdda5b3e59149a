"""What is read at each scrape: projections, loops, connections; no tenant, id or text."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from canonical.errors import StoreUnavailableError
from canonical.store.projections import GenerationStatus, ProjectionStatus, ShardStatus

Status = Callable[[], Sequence[ProjectionStatus]]
Counts = Callable[[], Mapping[str, int]]


Loops = Callable[[], Mapping[str, Mapping[str, int]]]  # by projection: see `workers.counts`
Connections = Mapping[str, Callable[[], tuple[int, int, int]]]

WRITES: Final = ("done", "stale", "refused", "again")
LOOP_COUNTERS: Final[Mapping[str, tuple[str, str]]] = {
    "gnomon_loop_events": ("Events that loops of this process have handled.", "events"),
    "gnomon_loop_pages": ("Pages that they have handled.", "pages"),
    "gnomon_loop_failures": ("Passes that failed: nothing moved.", "failures"),
    "gnomon_leases_lost": ("Leases lost to another worker, a shard each.", "leases_lost"),
}


# typing has `override` from Python 3.12 on: so each `collect` below says that it isn't there.
class Counted(Collector):
    """What parts of this process count themselves since its start, by one label."""

    def __init__(self, name: str, text: str, label: str, counts: Counts) -> None:
        self._name, self._text, self._label, self._counts = name, text, label, counts

    def collect(self) -> Iterator[Metric]:  # type: ignore[explicit-override]
        """Read the counts."""
        family = CounterMetricFamily(self._name, self._text, labels=[self._label])
        for one, count in self._counts().items():
            family.add_metric([one], count)
        yield family


class LoopCollector(Collector):
    """What the loops of this process have done, and whether they fail."""

    def __init__(self, loops: Loops) -> None:
        self._loops = loops

    def collect(self) -> Iterator[Metric]:  # type: ignore[explicit-override]
        """Read the counts."""
        loops = self._loops()
        for name, (text, field) in LOOP_COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=["projection"])
            for projection, one in loops.items():
                family.add_metric([projection], one[field])
            yield family
        yield self._writes(loops)
        failing = GaugeMetricFamily(
            "gnomon_loop_failing", "Passes in a row that failed.", labels=["projection"]
        )
        for projection, one in loops.items():
            failing.add_metric([projection], one["failing"])
        yield failing

    def _writes(self, loops: Mapping[str, Mapping[str, int]]) -> Metric:
        family = CounterMetricFamily(
            "gnomon_engine_writes",
            "Memories that pages brought to an engine, by what became of them.",
            labels=["projection", "outcome"],
        )
        for projection, one in loops.items():
            for outcome in WRITES:
                family.add_metric([projection, outcome], one[outcome])
        return family


class ConnectionCollector(Collector):
    """The connections of this process to Postgres, by the role that they serve as."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def collect(self) -> Iterator[Metric]:  # type: ignore[explicit-override]
        """Read the pools."""
        held = GaugeMetricFamily(
            "gnomon_postgres_connections", "Connections to Postgres.", labels=["role", "state"]
        )
        limit = GaugeMetricFamily(
            "gnomon_postgres_connections_limit", "How many there may be.", labels=["role"]
        )
        for role, read in self._connections.items():
            in_use, idle, most = read()
            held.add_metric([role, "in_use"], in_use)
            held.add_metric([role, "idle"], idle)
            limit.add_metric([role], most)
        yield from (held, limit)


class Projections(Collector):
    """The projections' state at the moment of a scrape."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def describe(self) -> Iterable[Metric]:
        """Return what will be collected, without reading anything."""
        return ()

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
        yield from self._shards(projections)

    def _paused(self, projections: Sequence[ProjectionStatus]) -> Metric:
        family = GaugeMetricFamily(
            "gnomon_projection_paused", "Whether it is paused.", labels=["projection"]
        )
        for projection in projections:
            family.add_metric([projection.name], projection.paused)
        return family

    def _generations(self, projections: Sequence[ProjectionStatus]) -> Iterator[Metric]:
        for name, (text, value) in FIGURES.items():
            family = GaugeMetricFamily(name, text, labels=LABELS)
            for projection in projections:
                for one in projection.generations:
                    family.add_metric(_labels(projection, one), value(one))
            yield family

    def _shards(self, projections: Sequence[ProjectionStatus]) -> Iterator[Metric]:
        for name, (text, value) in SHARD_FIGURES.items():
            family = GaugeMetricFamily(name, text, labels=[*LABELS, "shard"])
            for projection in projections:
                for one in projection.generations:
                    for shard in one.shards:
                        labels = [*_labels(projection, one), str(shard.shard)]
                        family.add_metric(labels, value(projection, shard))
            yield family


LABELS: Final = ("projection", "generation", "state")


def _labels(projection: ProjectionStatus, one: GenerationStatus) -> list[str]:
    return [projection.name, str(one.generation), one.state]


def stuck_s(projection: ProjectionStatus, shard: ShardStatus) -> float:
    """Return for how long work has waited at a shard whose watermark doesn't move; paused: 0."""
    if projection.paused or shard.waiting_s is None:
        return 0.0
    return max(0.0, min(shard.waiting_s, shard.moved_s))


FIGURES: Final[Mapping[str, tuple[str, Callable[[GenerationStatus], float]]]] = {
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
SHARD_FIGURES: Final[Mapping[str, tuple[str, Callable[[ProjectionStatus, ShardStatus], float]]]] = {
    "gnomon_shard_lag_positions": (
        "Positions that a shard is behind the log.",
        lambda _, shard: shard.lag,
    ),
    "gnomon_shard_lag_seconds": (
        "Age of the oldest event of a shard that is not applied; 0: none waits.",
        lambda _, shard: shard.waiting_s or 0.0,
    ),
    "gnomon_shard_stuck_seconds": (
        "For how long work has waited while the shard's watermark stood still; paused: 0.",
        stuck_s,
    ),
}
