"""Which memories of a page fail by themselves, where a projector fails in a way nobody foresaw."""

import random
from collections.abc import Callable, Sequence
from uuid import UUID

from canonical.errors import HaltError, PoisonError, ProjectorFailedError, TransientError

PROBES = 4  # memories tried alone to tell a bad one from a dead engine

Attempt = Callable[[Sequence[UUID]], object]


def culprits(attempt: Attempt, ids: Sequence[UUID]) -> dict[UUID, PoisonError]:
    """Find the memories that fail alone, each with its error, while others go through.

    `attempt` projects some memories of a page and raises if that fails.
    Guarantee: none is named unless another memory goes through alone, before the search and after
               it: an engine or a model that fails everything is dead, and parks nothing. So a
               memory that waits alone is never named: nobody waits behind it.
    Raises:    what a probe failed with, if all do. TransientError, HaltError: as they come.
    Cost:      4 attempts on a dead engine; else some 2 log2 n for each culprit of n.
    """
    good = _going_through(attempt, ids)
    found = _search(attempt, ids)
    if found and (died := failure(lambda: attempt([good]))) is not None:
        raise died
    return found


def failure(work: Callable[[], object]) -> Exception | None:
    """Do it, and return what it raised, unless it says itself that the engine is away or broken.

    Raises: TransientError, HaltError.
    """
    try:
        work()
    except (TransientError, HaltError):
        raise
    # What nobody foresaw is what is sought here, whatever its class.
    except Exception as exc:  # noqa: BLE001
        return exc
    return None


def poison(error: Exception) -> PoisonError:
    """Say as the error of one memory what projecting it failed with."""
    if isinstance(error, PoisonError):
        return error
    said = getattr(error, "orig", None) or error  # without the parameters of a statement
    return ProjectorFailedError(f"{type(said).__name__}: {said}")


def _going_through(attempt: Attempt, ids: Sequence[UUID]) -> UUID:
    """Return a memory that goes through alone: some are tried, others at the next pass."""
    error: Exception | None = None
    for one in random.sample(ids, min(PROBES, len(ids))):
        error = failure(lambda one=one: attempt([one]))  # type: ignore[misc]
        if error is None:
            return one
    raise error or ProjectorFailedError("the page fails without any memory")


def _search(attempt: Attempt, ids: Sequence[UUID]) -> dict[UUID, PoisonError]:
    found: dict[UUID, PoisonError] = {}
    suspects = [list(ids)]
    while suspects:
        some = suspects.pop()
        error = failure(lambda some=some: attempt(some))  # type: ignore[misc]
        if error is None:
            continue
        if len(some) == 1:
            found[some[0]] = poison(error)
        else:
            half = len(some) // 2
            suspects += [some[half:], some[:half]]
    return found
