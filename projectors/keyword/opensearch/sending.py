"""Sends writes in bulk until each is done, refused for good, or the time for it is over."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from opensearchpy import OpenSearch
from opensearchpy.exceptions import TransportError

from canonical.errors import (
    EngineMismatchError,
    EngineRefusedError,
    EngineUnavailableError,
    PoisonError,
)
from projectors.keyword.opensearch import bulk
from projectors.keyword.opensearch.bulk import Item, Verdict
from projectors.keyword.opensearch.failures import BUSY, TOO_LARGE, in_our_terms, reading
from projectors.keyword.opensearch.settings import OpenSearchSettings

_FIRST_PAUSE_S = 0.1


@dataclass(slots=True)
class Outcome:
    """What became of writes, as far as they are done."""

    stale: int = 0
    again: int = 0  # sent once more
    refused: dict[UUID, PoisonError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sender:
    """Writes to one index by its alias, which no write can make."""

    client: OpenSearch
    alias: str
    settings: OpenSearchSettings
    pause: Callable[[float], None]

    def send(self, items: Iterable[Item]) -> Outcome:
        """Write what is newer than what the index holds.

        Guarantee: each item is on disk, stale or refused when it returns. Those that the server
                   has no room for now are sent again, and they alone.
        Raises:    EngineUnavailableError, when some are still not done after `retry_for`, or the
                   server doesn't answer. EngineMismatchError, when the index is gone.
        """
        outcome, pauses = Outcome(), _pauses(self.settings.retry_for.total_seconds())
        waiting, kinds = self._round(items, outcome)
        while waiting:
            pause_s = next(pauses, None)
            if pause_s is None:
                raise EngineUnavailableError(
                    f"write: OpenSearch still does not take {len(waiting)} documents"
                    f" ({', '.join(sorted(kinds)) or 'no reason given'})"
                )
            self.pause(pause_s)
            outcome.again += len(waiting)
            waiting, kinds = self._round(waiting, outcome)
        return outcome

    def _round(self, items: Iterable[Item], outcome: Outcome) -> tuple[list[Item], set[str]]:
        """Send everything once; return what has to be sent again, and why."""
        again: list[Item] = []
        kinds: set[str] = set()
        bounds = self.settings.bulk_bytes, self.settings.bulk_items
        for request in bulk.requests(items, most_bytes=bounds[0], most=bounds[1]):
            for item, (verdict, kind) in zip(request, self._request(request), strict=True):
                match verdict:
                    case Verdict.DONE:
                        pass
                    case Verdict.STALE:
                        outcome.stale += 1
                    case Verdict.AGAIN:
                        again.append(item)
                        kinds.add(kind)
                    case Verdict.REFUSED if item.key is not None:
                        outcome.refused[item.key] = EngineRefusedError(
                            f"{item.key}: OpenSearch refuses it: {kind}"
                        )
                    case _:
                        raise EngineMismatchError(f"write: {self.alias} is gone: {kind}")
        return again, kinds

    def _request(self, request: Sequence[Item]) -> list[tuple[Verdict, str]]:
        try:
            with in_our_terms("write"):
                return self._answered(request)
        except EngineUnavailableError as exc:
            status = getattr(exc.__cause__, "status_code", None)
            if status not in BUSY:
                raise
            return [(Verdict.AGAIN, f"status {status}")] * len(request)

    def _answered(self, request: Sequence[Item]) -> list[tuple[Verdict, str]]:
        body = b"".join(item.lines for item in request)
        params = {
            "require_alias": "true",
            "request_timeout": self.settings.timeout.total_seconds(),
        }
        try:
            answer = self.client.bulk(body=body, index=self.alias, params=params)
        except TransportError as exc:
            if exc.status_code != TOO_LARGE:
                raise
            return self._parted(request)
        with reading("write"):
            return bulk.verdicts(answer, request)

    def _parted(self, request: Sequence[Item]) -> list[tuple[Verdict, str]]:
        """Halve a request that is over the server's own bound; alone, a document is refused."""
        if len(request) == 1:
            return [(Verdict.REFUSED, "larger than a request may be")]
        half = len(request) // 2
        return [*self._answered(request[:half]), *self._answered(request[half:])]


def _pauses(within_s: float) -> Iterator[float]:
    """Yield pauses, each twice the one before, that are over `within_s` seconds together."""
    pause_s, left_s = _FIRST_PAUSE_S, within_s
    while left_s > 0:
        yield min(pause_s, left_s)
        left_s -= pause_s
        pause_s *= 2
