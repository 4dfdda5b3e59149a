"""Deletes and every other change reach each store, also while it is away and after a kill."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import orjson
import psycopg
from psycopg.rows import dict_row

from canonical.domain.records import Status, guard
from canonical.store.embedded import EmbeddedPostgres
from inference.local import WordLlamaEmbedder
from projectors.keyword.embedded.engine import EmbeddedIndex
from projectors.vector.embedded.engine import EdgeEngine
from projectors.vector.schema import Shape
from tests.support.builders import until
from tests.support.server import Up

Json = dict[str, Any]

EACH = 102  # memories of a user
CHANGED = 8  # of another user's, by each verb
ENGINES = ("vector", "keyword")
LEGS = ("vector", "keyword", "entity")


def add(up: Up, user: str, count: int, **fields: str) -> list[str]:
    """Add memories in one go; each has a word of its own, and a name."""
    lines = [
        {"text": f"Mara Lind keeps {user}key{n} in Lisbon", "user_id": user, **fields}
        for n in range(count)
    ]
    answer = up.client.post(
        "/v1/memories:bulk",
        content=b"\n".join(orjson.dumps(line) for line in lines),
        headers={"Content-Type": "application/x-ndjson"},
    )
    return [orjson.loads(line)["id"] for line in answer.text.splitlines()[:-1]]


def done(answer: Any) -> Json:
    assert answer.is_success, answer.text
    return dict(answer.json())


def drained(up: Up) -> None:
    until(lambda: not any(up.lags().values()), "every projection to be at the log's end")


def end_leases(state: Path) -> None:
    """Let time pass: what the killed server held is free."""
    postgres = EmbeddedPostgres(state / "postgres")
    assert postgres.find() is not None
    with psycopg.connect(postgres.url(database="gnomon")) as conn:
        conn.execute("UPDATE watermark SET lease_until = now() WHERE lease_until > now()")


def pause(up: Up, verb: str) -> None:
    for name in ENGINES:
        done(up.client.post(f"/v1/projections/{name}:{verb}"))


def search(up: Up, query: str, user: str, **fields: Any) -> Json:
    question = {"query": query, "user_id": user, "explain": True, "top_k": 5, **fields}
    return done(up.client.post("/v1/search", json=question))


def shown(found: Json) -> list[str]:
    return [hit["id"] for hit in found["items"]]


def change_all(up: Up, ids: Sequence[str], user: str) -> dict[str, list[str]]:
    """Change a part of the memories by each verb; returns which."""
    parts = [list(ids[start : start + CHANGED]) for start in range(0, len(ids), CHANGED)]
    updated, superseded, expired = parts
    for n, one in enumerate(updated):
        done(up.client.patch(f"/v1/memories/{one}", json={"text": f"Ben Okafor took new{n}"}))
    for n, one in enumerate(superseded):
        body = {"text": f"Ben Okafor holds next{n}", "user_id": user, "agent_id": "a1"}
        done(up.client.post(f"/v1/memories/{one}:supersede", json=body))
    for one in expired:
        past = {"expires_at": "2026-01-01T00:00:00Z"}
        done(up.client.patch(f"/v1/memories/{one}", json=past))
    return {"updated": updated, "superseded": superseded, "expired": expired}


def test_what_is_deleted_or_changed_while_engines_are_away_is_so_in_every_store(
    tmp_path: Path,
) -> None:
    """L-01, L-02, L-03, Q-13: by id, by scope and by each other verb, with a SIGKILL between."""
    state = tmp_path / "state"
    with Up(state) as up:
        gone, kept, changed = (
            add(up, "ana", EACH),
            add(up, "ben", CHANGED),
            add(up, "cleo", 3 * CHANGED, agent_id="a1"),
        )
        drained(up)
        by_id = gone[0]
        done(up.client.delete(f"/v1/memories/{by_id}"))
        drained(up)
        pause(up, "pause")
        deleted = done(up.client.delete("/v1/memories", params={"user_id": "ana"}))
        assert deleted["count"] == EACH - 1
        parts = change_all(up, changed, "cleo")
        hidden_in_searches(up, gone, parts)
        up.kill()
    with Up(state) as up:
        end_leases(state)
        pause(up, "resume")
        drained(up)
        hidden_in_searches(up, gone, parts)
        for n, one in enumerate(kept):
            found = search(up, f"Mara Lind benkey{n}", "ben")
            assert shown(found)[0] == one
            assert set(found["items"][0]["explain"]["sources"]) == set(LEGS)
        assert up.stop() == 0
    with Stores(state) as stores:
        stores.check()
        dead = {UUID(one) for one in gone}
        for held in (stores.vector(), stores.keyword()):
            assert {i for i, (_, status) in held.items() if status is Status.DELETED} == dead
        assert stores.count("SELECT 1 FROM audit WHERE op = 'delete'") == len(dead)


def hidden_in_searches(up: Up, gone: Sequence[str], parts: dict[str, list[str]]) -> None:
    for n in range(0, EACH, 20):
        assert search(up, f"anakey{n} Lisbon", "ana")["items"] == []
    hidden = {*parts["superseded"], *parts["expired"]}
    for n in range(0, CHANGED, 3):
        assert shown(search(up, f"new{n}", "cleo"))[0] == parts["updated"][n]
        for word in (f"cleokey{n}", f"cleokey{n + CHANGED}", f"cleokey{n + 2 * CHANGED}"):
            assert not hidden & set(shown(search(up, word, "cleo")))


class Stores:
    """Every store of a state folder whose server has stopped, asked directly."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._postgres = EmbeddedPostgres(state / "postgres")

    def __enter__(self) -> Self:
        self._postgres.__enter__()
        url = self._postgres.url(database="gnomon")
        self._conn = psycopg.connect(url, row_factory=dict_row)
        return self

    def __exit__(self, *_: object) -> None:
        self._conn.close()
        self._postgres.__exit__(None, None, None)

    def rows(self, statement: str) -> list[Json]:
        return self._conn.execute(statement.encode()).fetchall()

    def count(self, statement: str) -> int:
        return len(self.rows(statement))

    def generation(self, name: str) -> str:
        statement = "SELECT projection, generation FROM generation WHERE state = 'live'"
        (number,) = {r["generation"] for r in self.rows(statement) if r["projection"] == name}
        return str(number)

    def vector(self) -> dict[UUID, tuple[int, Status | None]]:
        embedder = WordLlamaEmbedder()
        shape = Shape(embedder.model, embedder.dimension)
        with EdgeEngine.open(self.state / "vector" / self.generation("vector"), shape) as engine:
            return {i: (held, status) for i, held, status in engine.scan()}

    def keyword(self) -> dict[UUID, tuple[int, Status | None]]:
        with EmbeddedIndex.open(self.state / "keyword" / self.generation("keyword")) as engine:
            return {i: (held, status) for i, held, status in engine.scan()}

    def check(self) -> None:
        """Check that each store says what canonical state says, and has come to the log's end."""
        records = self.rows("SELECT id, rev, status FROM memory")
        wanted = {r["id"]: (guard(1, r["rev"]), Status(r["status"])) for r in records}
        assert self.vector() == wanted
        assert self.keyword() == wanted
        linked = {r["memory_id"]: r["rev"] for r in self.rows("SELECT * FROM entity_link")}
        live = {r["id"]: r["rev"] for r in records if Status(r["status"]).is_live}
        assert linked == live  # each text holds a name
        versions, entries = (
            Counter(
                (r["memory_id"], r["version"], r["op"]) for r in self.rows(f"SELECT * FROM {t}")
            )
            for t in ("memory_version", "audit")
        )
        assert entries == versions
        behind = "SELECT 1 FROM watermark w JOIN shard s USING (shard) WHERE w.pos < s.pos"
        assert self.rows(behind) == []
