"""Processes for the stress tests: writers that note what was acknowledged, a projecting process.

python -m tests.support.stress write URL NOTES SEED SECONDS
python -m tests.support.stress project URL FOLDER
"""

import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from pydantic import SecretStr

from canonical.domain.answers import Written
from canonical.domain.clock import SystemClock
from canonical.domain.commands import Caller, change, new_memory
from canonical.errors import GnomonError, RejectedError
from canonical.mutations import bulk
from canonical.mutations import change as changes
from canonical.mutations.add import add
from canonical.mutations.writer import Writer
from canonical.store import statements
from canonical.store.database import Database, Role
from gnomon.settings import Settings
from gnomon.wiring import open_backend

TENANT = "default"
PEOPLE = ("Mara Lind", "Ben Okafor", "Yuki Tanaka", "Ana Sousa", "Tom Berg")
PLACES = ("Lisbon", "Oslo", "Kyoto", "Lagos", "Turin")
HABITS = ("swims before work", "bakes bread", "plays chess", "collects stamps", "喜欢喝绿茶")


def sentence(dice: random.Random) -> str:
    """Return one of a few hundred texts: names are found once and cached."""
    return f"{dice.choice(PEOPLE)} of {dice.choice(PLACES)} {dice.choice(HABITS)}"


class StressWriter:
    """Adds, bulks, updates and deletes records that other writers work on too."""

    def __init__(self, url: str, notes: Path, seed: int) -> None:
        self.database = Database(url, Role.API, connections=2)
        self.writer = Writer(self.database, Caller(TENANT, f"writer {seed}"), SystemClock())
        self.dice = random.Random(seed)
        self.shared = notes.parent
        self.notes = notes.open("ab", buffering=0)
        self.known: list[UUID] = []

    def run(self, seconds: float) -> None:
        """Write for some seconds."""
        actions = (self.add, self.add, self.bulk, self.update, self.update, self.delete)
        until = time.monotonic() + seconds
        turn = 0
        while time.monotonic() < until:
            turn += 1
            if turn % 25 == 0:
                self.learn()
            try:
                if turn % 40 == 0:
                    self.roll_back()
                else:
                    self.note(self.dice.choice(actions)())
            except RejectedError:
                continue  # another writer was faster
            except GnomonError as exc:
                sys.stdout.write(f"unacknowledged: {exc}\n")

    def note(self, written: list[Written]) -> None:
        """Note what was acknowledged, so that a kill of this process loses no note."""
        self.notes.write(
            b"".join(orjson.dumps([str(w.memory_id), w.version]) + b"\n" for w in written)
        )
        self.known += [w.memory_id for w in written if w.version == 1]

    def learn(self) -> None:
        """Read what the other writers have added."""
        for path in self.shared.glob("notes-*"):
            lines = path.read_bytes().rpartition(b"\n")[0].splitlines()
            picked = self.dice.sample(lines, min(20, len(lines)))
            self.known += [UUID(orjson.loads(line)[0]) for line in picked]

    def fact(self) -> Any:
        """Make a checked new memory."""
        raw = {"user_id": f"u{self.dice.randrange(5)}", "text": sentence(self.dice)}
        return new_memory(raw, self.writer.caller)

    def add(self) -> list[Written]:
        return [add(self.writer, self.fact())]

    def bulk(self) -> list[Written]:
        lines = [(n, self.fact()) for n in range(self.dice.randrange(2, 60))]
        return list(bulk.add_chunk(self.writer, bulk.Chunk(lines)).written.values())

    def update(self) -> list[Written]:
        if not self.known:
            return self.add()
        said = change({"text": sentence(self.dice)})
        return [changes.update(self.writer, self.dice.choice(self.known), said)]

    def delete(self) -> list[Written]:
        if len(self.known) < 20:
            return self.add()
        return [changes.delete(self.writer, self.dice.choice(self.known))]

    def roll_back(self) -> None:
        """Take positions, then change our mind; half of the time only after a while."""
        with self.database.raw() as conn:
            conn.execute(statements.for_driver("set_tenant"), {"tenant": TENANT, "trace": ""})
            conn.execute(
                "SELECT * FROM append_events(ARRAY[gen_random_uuid()], ARRAY[1::bigint],"
                " ARRAY[1], ARRAY['add'])"
            )
            if self.dice.random() < 0.5:
                conn.execute("SELECT pg_sleep(0.2)")
            conn.rollback()


def project(url: str, folder: Path) -> None:
    """Run every projector on the embedded engines until SIGTERM."""
    done = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    with open_backend(Settings(state=folder, postgres_url=SecretStr(url), lease_s=2)):
        sys.stdout.write("projecting\n")
        sys.stdout.flush()
        done.wait()


def acknowledged(folder: Path) -> Iterator[tuple[UUID, int]]:
    """Read what all writers noted."""
    for path in folder.glob("notes-*"):
        for line in path.read_bytes().splitlines():
            memory_id, version = orjson.loads(line)
            yield UUID(memory_id), version


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", url, notes, seed, seconds]:
            StressWriter(url, Path(notes), int(seed)).run(float(seconds))
        case ["project", url, folder]:
            project(url, Path(folder))
        case _:
            sys.exit(__doc__)
