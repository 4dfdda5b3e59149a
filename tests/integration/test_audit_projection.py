"""The audit's chain on real Postgres: one entry per version, and every tampering is named."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from canonical.domain.commands import change, new_memory
from canonical.errors import ChainBrokenError, LeaseLostError, RecordMissingError
from canonical.mutations import change as changes
from canonical.mutations.add import add
from canonical.store import projections
from canonical.store.database import Database, Role
from canonical.store.feed import FeedSettings, LogFeed
from projectors import loop
from projectors.audit.signing import Signer
from projectors.audit.verify import Head, Report, verify
from projectors.audit.writer import AuditProjector, sign_heads
from projectors.protocol import Step
from tests.support.log import TENANT, Log


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

    def begin_another(self) -> int:
        """Begin a rebuild."""
        with self.projector.transaction() as conn:
            return projections.begin_generation(conn, "audit", "1", live=False).number

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


def test_swapped_entries_are_found(log: AuditLog) -> None:
    """Each is a true entry, in the wrong place."""
    log.audit()
    log.execute(
        "WITH two AS (SELECT shard, min(pos) AS a, max(pos) AS b FROM audit GROUP BY 1"
        " HAVING count(*) > 1 LIMIT 1) UPDATE audit u SET (hash, previous) ="
        " (SELECT o.hash, o.previous FROM audit o WHERE o.shard = two.shard"
        "   AND o.pos = CASE u.pos WHEN two.a THEN two.b ELSE two.a END)"
        " FROM two WHERE u.shard = two.shard AND u.pos IN (two.a, two.b)"
    )
    assert {
        "the entry doesn't follow the one before it",
        "the entry is not what was hashed",
    } <= log.problems()


def test_an_added_entry_is_found(log: AuditLog) -> None:
    log.audit()
    log.execute(
        "INSERT INTO audit SELECT generation, shard, pos + 1000, tenant, gen_random_uuid(), 1, op,"
        " status, at, by, why, text_mac, hash, hash FROM audit ORDER BY shard, pos DESC LIMIT 1"
    )
    assert "an entry has no version" in log.problems()


def test_the_first_broken_place_is_named(log: AuditLog) -> None:
    log.audit()
    place = "SELECT shard, pos FROM audit ORDER BY shard, pos OFFSET 9 LIMIT 1"
    expected = log.execute(place)[0]
    log.execute(f"UPDATE audit SET why = 'forged' WHERE (shard, pos) = ({place})")
    first = log.verified().problems[0]
    assert (first.shard, first.pos) == expected


CONTENT = {
    "text": "'forged'",
    "metadata": """'{"plan": "gold"}'""",
    "valid_from": "'2026-01-01'",
    "valid_to": "NULL",
    "expires_at": "'2030-01-01'",
}


def add_whole(log: AuditLog) -> None:
    """Add a memory that has everything which a version can change."""
    fields = {
        "text": "whole",
        "user_id": "u1",
        "metadata": {"plan": "free", "n": [1e22, -0.0, 0.1]},
    }
    times = {
        "valid_from": "2026-03-01T00:00:00+01:00",
        "valid_to": "2027-03-01T00:00:00.000001Z",
        "expires_at": "2028-03-01T00:00:00Z",
    }
    caller = log.writer.caller
    whole = add(log.writer, new_memory({**fields, **times}, caller))
    changes.update(log.writer, whole.memory_id, change({"expires_at": None}))
    changes.update(log.writer, whole.memory_id, change({"metadata": {"plan": 1e2}}))
    heir = new_memory(
        {"text": "heir", "user_id": "u1", "valid_from": "2026-06-01T00:00:00Z"}, caller
    )
    changes.supersede(log.writer, whole.memory_id, heir)
    log.audit()


@pytest.mark.parametrize("column", CONTENT)
def test_a_version_whose_content_was_changed_is_found(log: AuditLog, column: str) -> None:
    """The chain holds a MAC of the content; while content and salt are there, it proves it."""
    add_whole(log)
    assert log.problems() == set()
    assert log.verified().contents == 65
    where = f'"{column}" IS DISTINCT FROM {CONTENT[column]}'
    for version in (1, 2, 3, 4):
        log.execute(
            f'UPDATE memory_version SET "{column}" = {CONTENT[column]} WHERE {where} AND memory_id'
            " = (SELECT memory_id FROM memory_version WHERE version = 4) AND version = :v",
            v=version,
        )
        assert log.problems() == {"a version's content is not what was written"}
        assert len(log.verified().problems) == version


@pytest.mark.parametrize("column", CONTENT)
def test_a_content_that_searches_show_and_no_version_says_is_found(
    log: AuditLog, column: str
) -> None:
    add_whole(log)
    log.execute(f'UPDATE memory SET "{column}" = {CONTENT[column]}')
    assert log.problems() == {"the record's content is not that of its newest version"}


def test_a_salt_that_no_erase_took_is_missed(log: AuditLog) -> None:
    """Without its salt a text proves nothing, so it could be changed unseen."""
    log.audit()
    log.execute("UPDATE memory SET salt = NULL")
    log.execute("UPDATE memory_version SET text = 'forged'")
    assert log.problems() == {"the salt that proves the content is gone, without an erase"}


def test_an_erased_text_leaves_the_chain_whole(log: AuditLog) -> None:
    log.audit()
    log.execute(
        "UPDATE memory SET salt = NULL, text = '', content_hash = NULL, status = 'erased'"
        " WHERE status = 'deleted'"
    )
    log.execute(
        "UPDATE memory_version v SET text = '' FROM memory m WHERE m.id = v.memory_id"
        " AND m.salt IS NULL"
    )
    report = log.verified()
    assert report.ok
    assert 0 < report.contents < 60


def test_a_forged_signature_is_found(log: AuditLog) -> None:
    log.audit()
    log.execute("UPDATE audit_head SET signature = hash")
    assert log.problems() == {"a head's signature is wrong"}


def test_heads_of_another_key_are_counted_and_still_compared(log: AuditLog, tmp_path: Path) -> None:
    log.audit()
    other = Signer.at(tmp_path / "other.key")
    report = log.verified(other)
    assert (report.ok, report.heads) == (True, 0)
    assert report.unchecked_heads > 0
    log.execute("UPDATE audit_head SET hash = signature")
    assert "the hash is not the one that was signed" in {
        one.problem for one in log.verified(other).problems
    }


def test_exported_heads_convict_even_the_keeper_of_the_key(log: AuditLog) -> None:
    """Whoever has database and key can make everything anew, but not what was exported."""
    log.audit()
    newest = log.verified().newest.items()
    exported = [Head(shard, pos, digest) for shard, (pos, digest) in newest]
    log.execute("UPDATE memory_version SET why = 'forged' WHERE op = 'delete'")
    log.execute("DELETE FROM audit")
    log.execute("DELETE FROM audit_head")
    log.execute("UPDATE watermark SET pos = 0 WHERE projection = 'audit'")
    log.audit()
    assert log.verified().ok, "by itself, it looks well"
    with log.owner.transaction() as conn:
        found = verify(conn, log.number, log.signer, exported=exported).problems
    assert {one.problem for one in found} == {"the hash is not the one that was exported"}


def test_a_rebuild_reproduces_the_heads_that_were_signed(log: AuditLog) -> None:
    log.audit()
    first, log.number = log.number, log.begin_another()
    assert log.verified().ok, "not built yet: nothing to reproduce"
    log.audit()
    report = log.verified()
    assert report.ok
    assert report.heads >= 16 + 1
    with log.projector.transaction() as conn:
        sign_heads(conn, log.number, log.signer, range(16))
    log.execute("UPDATE memory_version SET why = 'forged' WHERE op = 'delete'")
    log.number = log.begin_another()
    log.audit()
    assert "the hash is not the one that was signed" in log.problems()
    assert first < log.number


@pytest.mark.parametrize(
    "said",
    [
        "quotes \" and \\ and / and '",
        "".join(chr(n) for n in range(1, 32)) + "\x7f\x80\u2028\u2029\ufeff",
        "Zoë 绿茶 🎈 e\u0301 \U0010ffff",
        "null",
        "",
    ],
    ids=ascii,
)
def test_postgres_and_python_write_an_entry_alike(log: AuditLog, said: str) -> None:
    """Postgres makes the chain, Python verifies it: the same bytes, whatever is in them."""
    log.execute("UPDATE memory_version SET by = :said, why = :said", said=said)
    log.execute("UPDATE memory_version SET at = '2026-03-01 12:00:00.000001+05' WHERE version = 2")
    log.execute("UPDATE memory_version SET at = '0001-01-01 00:00:00.5+00' WHERE version = 3")
    log.audit()
    report = log.verified()
    assert report.ok
    assert report.entries == 60


def test_a_zombie_appends_nothing(log: AuditLog) -> None:
    """O-07: a page that another worker has appended meanwhile."""
    zombie = log.audit_feed("zombie")
    leases = zombie.claim(range(16))
    page = zombie.page(zombie.read(leases, limit=32).events)
    late = AuditProjector(log.signer, generation=log.number).apply(page)
    log.end_leases()
    log.audit()
    touched = {mark.shard for mark in page.marks}
    with pytest.raises(LeaseLostError):
        zombie.advance([lease for lease in leases if lease.shard in touched], page, late)
    report = log.verified()
    assert (report.ok, report.entries) == (True, 60)


def test_a_signature_that_was_rolled_back_is_made_with_the_next_page(log: AuditLog) -> None:
    """It was tried before its page, or the page's commit failed: nothing of it counts."""
    feed = log.audit_feed()
    projector = AuditProjector(log.signer, generation=log.number)
    leases = feed.claim(feed.waiting())
    page = feed.page(feed.read(leases, limit=1_000).events)
    feed.rehearse(leases, projector.apply(page))
    assert log.execute("SELECT 1 FROM audit_head") == []
    feed.advance(leases, page, projector.apply(page))
    shards = {mark.shard for mark in page.marks}
    assert {shard for (shard,) in log.execute("SELECT shard FROM audit_head")} == shards


def test_a_head_is_signed_again_after_some_entries(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were rolled back are no entries."""
    monkeypatch.setattr("projectors.audit.writer.SIGN_EVERY_ROWS", 3)
    monkeypatch.setattr("projectors.audit.writer.SIGN_EVERY_S", 1e6)
    log.audit()
    signed = "SELECT count(*) FROM audit_head"
    before = log.execute(signed)
    projector, feed = AuditProjector(log.signer, generation=log.number), log.audit_feed()
    projector._signed_at = dict.fromkeys(range(16), time.monotonic())
    memory_id = log.add("changes")
    grown = []
    for n in range(4):
        leases = feed.claim(feed.waiting())
        page = feed.page(feed.read(leases, limit=1_000).events)
        feed.rehearse(leases, projector.apply(page))
        feed.advance(leases, page, projector.apply(page))
        grown.append(log.execute(signed) != before)
        changes.update(log.writer, memory_id, change({"text": f"changed {n}"}))
    assert grown == [False, False, True, True]


def test_a_page_that_was_appended_before_stops_the_shard(log: AuditLog) -> None:
    """A watermark that was set back by hand makes no second entry."""
    log.audit()
    log.execute("UPDATE watermark SET pos = 0 WHERE projection = 'audit'")
    with pytest.raises(ChainBrokenError):
        log.audit()
    assert log.execute("SELECT count(*) FROM audit") == [(60,)]


def test_a_repair_makes_no_entry(log: AuditLog) -> None:
    """Events without a new version are passed over."""
    log.execute(
        "SELECT set_config('gnomon.tenant', :t, true), append_events(array_agg(id),"
        " array_agg(rev + 1), array_agg(version), array_agg('repair'::text))"
        " FROM memory WHERE status = 'active'",
        t=TENANT,
    )
    log.audit()
    report = log.verified()
    assert (report.ok, report.entries) == (True, 60)


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
