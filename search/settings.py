"""What may be tuned in a search, with what each figure was chosen by."""

from dataclasses import dataclass, field
from datetime import timedelta

from search.fusion import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Bounds and weights of a search.

    over_fetch:       each leg is asked for max(over_fetch x top_k, over_fetch_min).
    leg_budget:       how long the answer waits for a leg.
    embedding_budget: how long embeddings of the tail may take.
    refill_rounds:    how often the legs are asked for twice as many, when hits were dropped.
    tail_limit:       newest records of the scope that are scored though no index holds them.
    marks_max_age:    watermarks read this long ago still serve: they only rise, so an old one
                      makes the tail longer and never leaves a gap.
    lagging_*:        from where on a projection that is behind is called degraded; below, the
                      tail makes up for it and nothing is missing.
    threads:          of all searches together; a leg that hangs holds one.
    """

    over_fetch: int = 4
    over_fetch_min: int = 60
    leg_budget: timedelta = timedelta(seconds=2)
    embedding_budget: timedelta = timedelta(milliseconds=300)
    refill_rounds: int = 5
    tail_limit: int = 2_000
    marks_max_age: timedelta = timedelta(milliseconds=100)
    lagging_positions: int = 1_000
    lagging_for: timedelta = timedelta(seconds=2)
    threads: int = 24
    weights: Weights = field(default_factory=Weights)
