"""A real `gnomon up` for benchmarks: clients with keys, its Postgres for floors, its memory."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import orjson
import psycopg

from canonical.domain.records import Trust
from canonical.store import api_keys, migrate
from canonical.store.api_keys import Right
from canonical.store.database import Database
from canonical.store.embedded import LOGIN, EmbeddedPostgres
from gnomon.cli import store
from gnomon.settings import Settings
from tests.support.server import Up

PROJECTIONS = ("vector", "keyword", "entity", "audit")
DRAINED_S = 600
LOOK_S = 0.25
FLOOR = "floor"  # a database beside Gnomon's, with the same tables


@dataclass(frozen=True)
class Server:
    """A running server. `client`: of the tenant `bench`, with a connection that is kept."""

    up: Up
    client: httpx.Client
    owner: Database
    postgres: EmbeddedPostgres

    @property
    def superuser(self) -> str:
        """Return the URL of Gnomon's database for who may do anything."""
        return self.postgres.url(database="gnomon")

    def superuser_connection(self) -> psycopg.Connection:
        """Connect to Gnomon's database as its superuser; each statement commits."""
        return psycopg.connect(self.superuser, autocommit=True)

    def load(self, raws: Iterable[dict[str, object]], mutation_id: str | None = None) -> float:
        """Bulk-add memories; return how long the request took, their JSON made before."""
        body = b"".join(orjson.dumps(raw) + b"\n" for raw in raws)
        given = {} if mutation_id is None else {"mutation_id": mutation_id}
        headers = {"Content-Type": "application/x-ndjson"}
        began = time.perf_counter()
        answer = self.client.post("/v1/memories:bulk", content=body, params=given, headers=headers)
        took = time.perf_counter() - began
        summary = orjson.loads(answer.raise_for_status().content.splitlines()[-1])["summary"]
        assert summary["complete"], summary
        assert not summary["refused"], summary
        return took

    def drain(self, names: Sequence[str] = PROJECTIONS) -> float:
        """Wait until these projections are at the log's end; return how long that took."""
        began = time.monotonic()
        while time.monotonic() - began < DRAINED_S:
            lags = self.lags()
            if not any(lags[name] for name in names):
                return time.monotonic() - began
            time.sleep(LOOK_S)
        raise TimeoutError(f"not drained within {DRAINED_S} s: {self.lags()}")

    def lags(self) -> dict[str, int]:
        """Return how far each projection is behind."""
        items = self.client.get("/v1/projections").raise_for_status().json()["items"]
        return {one["name"]: one["lag"] for one in items}

    def pause(self, names: Sequence[str], *, paused: bool) -> None:
        """Stop projections, or let them go on."""
        for name in names:
            verb = "pause" if paused else "resume"
            self.client.post(f"/v1/projections/{name}:{verb}").raise_for_status()

    def memory_mib(self) -> dict[str, float]:
        """Return the resident and the proportional memory of the process and its NER child."""
        pids = [self.up.process.pid, *_children(self.up.process.pid)]
        ours = [pid for pid in pids if not _is_postgres(pid)]
        rolls = [_rollup(pid) for pid in ours]
        return {part: sum(roll[part] for roll in rolls) / 1024 for part in ("Rss", "Pss")}


@contextmanager
def started() -> Iterator[Server]:
    """Start a server on a fresh state folder with a tenant of its own; end it at the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="gnomon-bench-")))
        state = folder / "state"
        up = Up(state)
        stack.callback(up.stop)
        owner = stack.enter_context(store.opened(Settings(state=state)))
        _, secret = api_keys.create(owner, "bench", "bench", frozenset(Right), Trust.USER)
        headers = {"Authorization": f"Bearer {secret}"}
        client = httpx.Client(base_url=up.url, headers=headers, timeout=300)
        stack.callback(client.close)
        postgres = EmbeddedPostgres(state / "postgres")
        assert postgres.find() is not None
        yield Server(up, client, owner, postgres)


def floor_database(postgres: EmbeddedPostgres) -> str:
    """Make an empty database with Gnomon's tables; return a superuser's URL of it.

    The floor of a write is measured there: the same server, tables and indexes, no projector.
    """
    with psycopg.connect(postgres.url(database="gnomon"), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {FLOOR} OWNER gnomon_owner TEMPLATE template0")
    migrate.upgrade(postgres.url(LOGIN, FLOOR))
    return postgres.url(database=FLOOR)


def chunks(raws: Iterable[dict[str, object]], size: int) -> Iterator[list[dict[str, object]]]:
    """Cut memories into lists."""
    left = iter(raws)
    return iter(lambda: list(islice(left, size)), [])


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    direct = [int(child) for one in found for child in one.read_text().split()]
    return [*direct, *(below for child in direct for below in _children(child))]


def _is_postgres(pid: int) -> bool:
    return "postgres" in Path(f"/proc/{pid}/comm").read_text()


def _rollup(pid: int) -> dict[str, float]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    pairs = (line.split() for line in lines if line.endswith("kB"))
    return {words[0].rstrip(":"): float(words[1]) for words in pairs}
