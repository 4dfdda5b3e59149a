"""Threads for the kinds of requests: a slow kind fills its own lane and stops no other."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from enum import Enum
from typing import TypeVar

from canonical import tracing
from gnomon.api.refusals import OverloadedError
from gnomon.api.services import ApiSettings

T = TypeVar("T")


class Kind(Enum):
    """Kinds of requests by what they wait for."""

    WRITE = "write"
    READ = "read"
    SEARCH = "search"
    BULK = "bulk"
    ADMIN = "admin"


class Lane:
    """Some threads, and a bounded wait for one of them."""

    def __init__(self, name: str, threads: int, queue_for: timedelta) -> None:
        self.name = name
        self._free = asyncio.Semaphore(threads)
        self._queue_s = queue_for.total_seconds()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"api-{name}")

    async def run(self, work: Callable[[], T]) -> T:
        """Do `work` on a thread.

        Raises: OverloadedError, when no thread gets free in time; nothing was done then.
        """
        if self._free.locked():
            await self._queue()
        else:
            await self._free.acquire()
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._pool, tracing.carried(work)
            )
        finally:
            self._free.release()

    async def _queue(self) -> None:
        try:
            async with asyncio.timeout(self._queue_s):
                await self._free.acquire()
        except TimeoutError:
            raise OverloadedError(
                f"all threads for requests of the kind {self.name!r} were busy for "
                f"{self._queue_s:g} s"
            ) from None

    def close(self) -> None:
        """Take no more work; what is at work ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def lanes(settings: ApiSettings) -> dict[Kind, Lane]:
    """Make the lanes."""
    threads = {
        Kind.WRITE: settings.write_threads,
        Kind.READ: settings.read_threads,
        Kind.SEARCH: settings.search_threads,
        Kind.BULK: settings.bulk_threads,
        Kind.ADMIN: settings.admin_threads,
    }
    return {kind: Lane(kind.value, n, settings.queue_for) for kind, n in threads.items()}
