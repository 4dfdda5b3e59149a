"""Eight writing processes, and a projecting one that is killed again and again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from pydantic import SecretStr
from sqlalchemy import text

from canonical.domain.records import Status, guard
from canonical.store import migrate, projections
from canonical.store.database import Database, Role
from canonical.store.embedded import EmbeddedPostgres
from gnomon.settings import Settings
from gnomon.wiring import open_backend
from inference.local import WordLlamaEmbedder
from projectors.keyword.embedded.engine import EmbeddedIndex
from projectors.vector.embedded.engine import EdgeEngine
from projectors.vector.schema import Shape
from tests.support.stress import acknowledged

SECONDS = float(os.environ.get("GNOMON_STRESS_SECONDS", "6"))
KILLS = int(os.environ.get("GNOMON_STRESS_KILLS", "3"))
WRITERS = 8
DRAIN_S = 300


def stress(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.support.stress", *arguments]


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(stress(*arguments), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_every_acknowledged_write_ends_in_every_projection_exactly_once(
    tmp_path: Path,
) -> None:
    """O-01, O-04, O-07, O-09, O-18, L-01: after rollbacks, held transactions and SIGKILLs."""
    with EmbeddedPostgres(tmp_path / "postgres") as server:
        url = server.url("gnomon", "gnomon")
        migrate.upgrade(url)
        owner = Database(url, Role.OWNER)
        write_under_kills(tmp_path, url, owner)
        drain(Settings(state=tmp_path / "state", postgres_url=SecretStr(url), lease_s=2))
        check_canonical(owner, dict_of_newest(tmp_path))
        check_projections(owner, tmp_path / "state")
        owner.close()


def write_under_kills(tmp_path: Path, database_url: str, owner: Database) -> None:
    state = tmp_path / "state"
    writers = [
        subprocess.Popen(
            stress("write", database_url, str(tmp_path / f"notes-{seed}"), str(seed), str(SECONDS)),
            stdout=subprocess.DEVNULL,
        )
        for seed in range(WRITERS)
    ]
    with held_open_insert(owner):
        for _ in range(KILLS):
            with child("project", database_url, str(state)) as projecting:
                assert projecting.stdout is not None
                assert projecting.stdout.readline().strip() == "projecting"
                with pytest.raises(subprocess.TimeoutExpired):
                    projecting.wait(SECONDS / KILLS)
    for writer in writers:
        assert writer.wait(SECONDS + 60) == 0


@contextmanager
def held_open_insert(owner: Database) -> Iterator[None]:
    """Hold an insert open from before the others' commits to after them."""
    with owner.transaction() as conn:
        conn.execute(
            text(
                "INSERT INTO memory (tenant, id, user_id, version, rev, status, kind, text,"
                " content_hash) VALUES ('default', gen_random_uuid(), 'u1', 1, 1, 'active',"
                " 'raw', 'held open', '\\x00')"
            )
        )
        conn.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield
        conn.rollback()


def drain(settings: Settings) -> None:
    until = time.monotonic() + DRAIN_S
    with open_backend(settings) as backend:
        for runner in backend.runners:
            runner.wait_until(
                lambda: all(
                    g.lag == 0 and g.parked == 0
                    for p in projections.status(backend.databases.projector)
                    for g in p.generations
                ),
                timeout_s=max(1.0, until - time.monotonic()),
            )


def dict_of_newest(folder: Path) -> dict[UUID, set[int]]:
    seen: dict[UUID, set[int]] = {}
    for memory_id, version in acknowledged(folder):
        assert version not in seen.setdefault(memory_id, set()), "one version acknowledged twice"
        seen[memory_id].add(version)
    assert len(seen) > 100
    return seen


def check_canonical(owner: Database, seen: dict[UUID, set[int]]) -> None:
    with owner.transaction() as conn:
        versions: dict[UUID, set[int]] = {}
        for memory_id, version in conn.execute(
            text("SELECT memory_id, version FROM memory_version")
        ):
            versions.setdefault(memory_id, set()).add(version)
        for memory_id, acknowledged_versions in seen.items():
            assert acknowledged_versions <= versions.get(memory_id, set())
        holes = conn.execute(
            text(
                "SELECT s.shard FROM shard s LEFT JOIN outbox o USING (shard) GROUP BY s.shard"
                " HAVING count(o.pos) <> s.pos OR coalesce(max(o.pos), 0) <> s.pos"
                " OR coalesce(min(o.pos), 1) <> 1 OR count(DISTINCT o.pos) <> count(o.pos)"
            )
        ).all()
        assert holes == []


def check_projections(owner: Database, state: Path) -> None:
    with owner.transaction() as conn:
        rows = conn.execute(text("SELECT id, rev, status, text FROM memory")).all()
        wanted = {row.id: (guard(1, row.rev), Status(row.status)) for row in rows}
        live = {i for i, (_, status) in wanted.items() if status.is_live}
        generations: dict[str, int] = dict(
            conn.execute(
                text("SELECT projection, generation FROM generation WHERE state = 'live'")
            ).all()
        )
        versions = set(conn.execute(text("SELECT memory_id, version FROM memory_version")).all())
        audited = conn.execute(text("SELECT memory_id, version FROM audit")).all()
        linked = set(conn.execute(text("SELECT memory_id, rev FROM entity_link")).all())
        degrees = conn.execute(
            text(
                "SELECT 1 FROM (SELECT entity_id, shard, count(*) AS n FROM entity_link GROUP BY"
                " 1, 2) l FULL JOIN entity_degree d USING (entity_id, shard)"
                " WHERE coalesce(l.n, 0) <> coalesce(d.degree, 0)"
            )
        ).all()
    assert len(audited) == len(set(audited))
    assert set(audited) == versions
    assert {memory_id for memory_id, _ in linked} <= live
    has_names = {row.text for row in rows if (row.id, row.rev) in linked}
    assert len(has_names) > 10
    for row in rows:  # the same text has the same names, wherever it is live
        assert ((row.id, row.rev) in linked) == (row.id in live and row.text in has_names)
    assert linked <= {(row.id, row.rev) for row in rows}
    assert degrees == []
    with EmbeddedIndex.open(state / "keyword" / str(generations["keyword"])) as keyword:
        assert {i: (g, s) for i, g, s in keyword.scan()} == wanted
    embedder = WordLlamaEmbedder()
    shape = Shape(embedder.model, embedder.dimension)
    with EdgeEngine.open(state / "vector" / str(generations["vector"]), shape) as vector:
        assert {i: (g, s) for i, g, s in vector.scan()} == wanted
