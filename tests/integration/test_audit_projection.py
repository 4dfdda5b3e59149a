"""The audit's chain on real Postgres: one entry per version, and every tampering is named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from canonical.domain.commands import change
from canonical.errors import RecordMissingError
from canonical.mutations import change as changes
from canonical.store import projections
from canonical.store.database import Database, Role
from canonical.store.feed import FeedSettings, LogFeed
from projectors import loop
from projectors.audit.signing import Signer
from projectors.audit.verify import Report, verify
from projectors.audit.writer import AuditProjector
from projectors.protocol import Step
from tests.support.log import Log


class CrashError(BaseException):
    """The process dies here."""


class AuditLog(Log):
    """A log whose audit can be projected, verified and tampered with."""

    def __init__(self, open_database: Callable[[Role], Database], key: Path) -> None:
        super().__init__(open_database)
        self.signer = Signer.at(key)
        with self.projector.transaction() as conn:
            self.number = projections.begin_generation(conn, "audit", "1", live=True).number

    def audit_feed(self, owner: str = "one") -> LogFeed:
        settings = FeedSettings(projection="audit", generation=self.number, epoch=1, owner=owner)
        return LogFeed(self.projector, settings)

    def audit(self, at: loop.At = loop.ignore, *, limit: int = 16) -> None:
        """Project until nothing waits, by a new worker."""
        projector, feed = AuditProjector(self.signer, generation=self.number), self.audit_feed()
        while shards := feed.waiting():
            progress = loop.run_page(feed, projector, feed.claim(shards), limit=limit, at=at)
            if progress.halted:
                raise next(iter(progress.halted.values()))

    def verified(self, signer: Signer | None = None) -> Report:
        with self.owner.transaction() as conn:
            return verify(conn, self.number, signer or self.signer)

    def problems(self) -> set[str]:
        return {one.problem for one in self.verified().problems}


@pytest.fixture
def log(open_database: Callable[[Role], Database], tmp_path: Path) -> AuditLog:
    made = AuditLog(open_database, tmp_path / "audit.key")
    ids = [made.add(f"fact {n}") for n in range(40)]
    for memory_id in ids[:10]:
        changes.update(made.writer, memory_id, change({"text": "changed"}))
    for memory_id in ids[5:15]:
        changes.delete(made.writer, memory_id, why="asked")
    return made


def test_every_version_has_one_entry_and_the_chain_holds(log: AuditLog) -> None:
    """O-07: updates and deletes are entries of their own."""
    log.audit()
    report = log.verified()
    assert report.ok
    assert report.entries == 60
    assert report.heads > 0
    assert log.execute("SELECT count(*) FROM audit WHERE op = 'delete' AND why = 'asked'") == [
        (10,)
    ]


@pytest.mark.parametrize("step", [Step.PAGE_READ, Step.PAGE_APPLIED, Step.WATERMARK_MOVED])
def test_a_crash_doubles_and_loses_no_entry(log: AuditLog, step: Step) -> None:
    """O-07: entries commit with the watermark."""

    def crash(reached: Step) -> None:
        if reached is step:
            raise CrashError

    with pytest.raises(CrashError):
        log.audit(crash)
    log.end_leases()
    log.audit()
    report = log.verified()
    assert report.ok
    assert report.entries == 60


@pytest.mark.parametrize(
    "column", ["tenant", "memory_id", "version", "op", "status", "at", "by", "why", "text_mac"]
)
def test_a_changed_column_is_found(log: AuditLog, column: str) -> None:
    log.audit()
    value = {
        "memory_id": "gen_random_uuid()",
        "version": "version + 100",
        "at": "at + interval '1 s'",
        "text_mac": "'\\x00'",
    }.get(column, "'forged'")
    log.execute(
        f'UPDATE audit SET "{column}" = {value} WHERE (shard, pos) IN'
        " (SELECT shard, pos FROM audit LIMIT 1)"
    )
    assert "the entry is not what was hashed" in log.problems()


def test_a_removed_entry_is_found(log: AuditLog) -> None:
    log.audit()
    log.execute(
        "DELETE FROM audit WHERE (shard, pos) IN (SELECT shard, max(pos) - 1 FROM audit"
        " GROUP BY shard HAVING count(*) > 1 LIMIT 1)"
    )
    assert {
        "the entry doesn't follow the one before it",
        "a version has no entry",
    } <= log.problems()


def test_a_tail_cut_behind_a_signed_head_is_found(log: AuditLog) -> None:
    """Also when the versions were removed with it: the signature remembers."""
    log.audit()
    cut = log.execute("SELECT shard, pos FROM audit_head ORDER BY pos DESC LIMIT 1")
    shard, pos = cut[0]
    log.execute("DELETE FROM audit WHERE shard = :s AND pos >= :p", s=shard, p=pos)
    log.execute("DELETE FROM memory_version WHERE shard = :s AND pos >= :p", s=shard, p=pos)
    assert log.problems() == {"the entry that was signed is gone"}


def test_a_chain_made_anew_without_the_key_is_found(log: AuditLog, tmp_path: Path) -> None:
    """A forger who can write to every table still lacks the key."""
    log.audit()
    log.execute("UPDATE memory_version SET why = 'forged' WHERE op = 'delete'")
    heads = log.execute("SELECT shard, pos FROM audit_head")
    log.execute("DELETE FROM audit")
    log.execute("DELETE FROM audit_head")
    log.execute("UPDATE watermark SET pos = 0 WHERE projection = 'audit'")
    forger = Signer.at(tmp_path / "forged.key")
    ours, log.signer = log.signer, forger
    log.audit()
    log.signer = ours
    log.execute("UPDATE audit_head SET key_id = :k", k=ours.key_id)
    assert heads
    assert "a head's signature is wrong" in log.problems()


def test_an_event_without_its_version_stops_the_shard(log: AuditLog) -> None:
    """Nothing is stepped over: the log says that there was a version."""
    log.execute("DELETE FROM memory_version WHERE op = 'delete'")
    with pytest.raises(RecordMissingError):
        log.audit()


def test_the_role_that_appends_can_change_nothing(log: AuditLog) -> None:
    """Append-only by privilege."""
    log.audit()
    for statement in ("UPDATE audit SET why = 'x'", "DELETE FROM audit", "DELETE FROM audit_head"):
        with pytest.raises(Exception, match="permission denied"):
            _as_projector(log, statement)


def _as_projector(log: AuditLog, statement: str) -> None:
    with log.projector.transaction() as conn:
        conn.exec_driver_sql(statement)
