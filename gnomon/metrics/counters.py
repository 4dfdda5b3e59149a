"""What the process counts and times, as Prometheus reads it: no tenant, id or text in a label."""

from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from gnomon.metrics import collectors
from gnomon.metrics.collectors import Connections, Counts, Loops, Status
from search.answer import Answer, Degraded, Shortfall

REQUEST_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0)
SEARCH_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)

HINTS: Final = ("given", "sent", "lost", "worked", "idle")
ANSWERS: Final = ("whole", "degraded")
UNTIMED: Final = frozenset({Shortfall.FAILED, Shortfall.TOO_LATE})  # a leg that gave nothing


class Metrics:
    """Counters of one process; also what a search counts into. Nothing here raises."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
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
        self.hints = Counter(
            "gnomon_hints",
            "Hints to projectors, by what became of them.",
            ["outcome"],
            registry=registry,
        )
        for outcome in HINTS:  # a rate can't be had of a counter that begins at 1
            self.hints.labels(outcome)
        self._count_searches(registry)

    def _count_searches(self, registry: CollectorRegistry) -> None:
        self.search_seconds = Histogram(
            "gnomon_search_seconds",
            "Time of the parts of a search: legs, tail, recheck, total.",
            ["part"],
            buckets=SEARCH_S,
            registry=registry,
        )
        self.answers = Counter(
            "gnomon_search_answers",
            "Answers to searches: whole, or degraded.",
            ["answer"],
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
        for answer in ANSWERS:
            self.answers.labels(answer)

    def watch(self, status: Status) -> None:
        """Show the projections' state as well, read at each scrape."""
        self.registry.register(collectors.Projections(status))

    def watch_loops(self, loops: Loops) -> None:
        """Show what this process's loops have done, by projection, as well."""
        self.registry.register(collectors.LoopCollector(loops))

    def watch_connections(self, connections: Connections) -> None:
        """Show this process's connections to Postgres, by role, as well."""
        self.registry.register(collectors.ConnectionCollector(connections))

    def watch_chores(self, failed: Counts) -> None:
        """Show how often this process's chores have failed as well."""
        text = "Failures of a chore, such as forgetting old keys: it is tried again in a minute."
        self.registry.register(collectors.Counted("gnomon_chore_failures", text, "chore", failed))

    def exposition(self) -> bytes:
        """Return everything in Prometheus's text format."""
        return generate_latest(self.registry)

    def wrote(self, command: str, outcome: str, count: int = 1) -> None:
        """Count written or refused memories."""
        if count:
            self.writes.labels(command, outcome).inc(count)

    def hinted(self, outcome: str, count: int = 1) -> None:
        """Count hints: see `workers.counts.HintCounts`."""
        self.hints.labels(outcome).inc(count)

    def searched(self, answer: Answer, *, candidates: int, dropped: int, rounds: int) -> None:
        """Count a search; a leg that gave nothing took no time that says anything."""
        self.answers.labels(ANSWERS[bool(answer.degraded)]).inc()
        silent = {one.leg for one in answer.degraded if one.reason in UNTIMED}
        self.candidates.inc(candidates)
        self.dropped.inc(dropped)
        self.refills.inc(max(0, rounds - 1))
        for part, seconds in answer.seconds.items():
            if part not in silent:
                self.search_seconds.labels(part).observe(seconds)

    def degraded(self, shortfall: Degraded) -> None:
        """Count a part of a search that fell short."""
        reason, code = shortfall.reason.value, shortfall.code or ""
        self.shortfalls.labels(shortfall.leg, reason, code).inc()

    def diagnostics_lost(self, code: str) -> None:
        """Count a diagnostics event that could not be kept."""
        self.lost_events.labels(code).inc()
