"""A production set-up for tests: one Postgres, servers where a test has them, many processes."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import httpx
from sqlalchemy import text

from canonical.store.database import Database
from tests.support.processes import WITHIN_S, Program

HOME = Path(__file__).parents[2]
LEASE_S = "2"


class Site:
    """A Postgres, and the processes that a test starts on it, each with the site's settings."""

    def __init__(self, url: str, folder: Path, stack: ExitStack, **settings: str) -> None:
        self.folder, self.stack = folder, stack
        self.env = {
            "GNOMON_POSTGRES_URL_FILE": str(folder / "postgres_url"),
            "GNOMON_STATE": str(folder / "state"),
            "GNOMON_LEASE_S": LEASE_S,
            "GNOMON_IDLE_S": "0.1",
            **settings,
        }
        (folder / "postgres_url").write_text(f"{url}\n")

    def worker(self, *options: str) -> Program:
        named = ("worker", "--projections", "vector,audit", *options)
        return self.stack.enter_context(Program(self.folder / "worker.log", self.env, *named))

    def serve(self, *options: str) -> httpx.Client:
        log = self.folder / "serve.log"
        program = self.stack.enter_context(Program(log, self.env, "serve", "--port", "0", *options))
        client = httpx.Client(base_url=program.announced["address"], timeout=60)
        return self.stack.enter_context(client)

    def celery(self, *arguments: str, **settings: str) -> "Celery":
        log = self.folder / f"celery-{arguments[0]}.log"
        return self.stack.enter_context(Celery(log, {**self.env, **settings}, *arguments))


class Celery:
    """`celery -A gnomon worker` or `beat`, as a process."""

    def __init__(self, log: Path, env: dict[str, str], *arguments: str) -> None:
        plain = {name: v for name, v in os.environ.items() if not name.startswith("GNOMON_")}
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "gnomon", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=HOME,
                env={**plain, **env},
                start_new_session=True,  # a pool that forks ends by ending its group
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        """End it as an orchestrator does, and return its exit code."""
        self.process.terminate()
        return self.process.wait(WITHIN_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


def rows(owner: Database, statement: str) -> list[tuple[Any, ...]]:
    with owner.transaction() as conn:
        return [tuple(row) for row in conn.execute(text(statement))]


def add(client: httpx.Client, first: int, end: int) -> None:
    memories = [{"text": f"Mara keeps key {n}", "user_id": "mara"} for n in range(first, end)]
    client.post("/v1/memories", json={"memories": memories}).raise_for_status()


def search(client: httpx.Client, n: int) -> tuple[list[str], dict[str, str]]:
    asked = {"query": f"Mara keeps key {n}", "user_id": "mara", "top_k": 5}
    answer = client.post("/v1/search", json=asked)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return (
        [hit["text"] for hit in found["items"]],
        {one["leg"]: one["reason"] for one in found["degraded"]},
    )


def behind(owner: Database) -> int:
    ((lag,),) = rows(
        owner,
        "SELECT coalesce(sum(s.pos - w.pos), 1) FROM watermark w JOIN shard s USING (shard)"
        " JOIN generation g USING (projection, generation) WHERE g.state = 'live'",
    )
    return int(lag)


def holders(owner: Database) -> set[tuple[Any, ...]]:
    return set(rows(owner, "SELECT lease_owner FROM watermark WHERE lease_until > now()"))
