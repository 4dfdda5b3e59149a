"""What each write leaves in canonical state: records, versions, links, and nothing beside."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import orjson
import pytest

from canonical.domain.answers import Written
from canonical.domain.commands import NO_PROVENANCE, Change, NewMemory
from canonical.domain.door import LIMITS
from canonical.domain.filters import facets
from canonical.domain.records import Link, Op, Record, Status, Tombstone
from canonical.domain.scope import Scope
from canonical.domain.visibility import Visible
from canonical.errors import (
    InvalidInputError,
    NotFoundError,
    StatusConflictError,
    VersionConflictError,
)
from canonical.mutations import change as changes
from canonical.mutations.add import add
from canonical.mutations.bulk import Chunk, add_chunk
from canonical.mutations.change import delete, delete_scope, supersede, update
from canonical.mutations.writer import Writer
from canonical.store import records, rows
from canonical.store.reading import CanonicalReader
from tests.support.builders import NOW, TENANT, Store, at_once, new

MISSING = UUID(int=1)
SINCE_EVER = ["lives in Porto", "lives in Lisbon"]  # of the newer one nobody said since when


def get(store: Store, written: Written) -> Record:
    return CanonicalReader(store.api).get(TENANT, written.memory_id)


def bulk_one(writer: Writer, memory: NewMemory) -> Written:
    return add_chunk(writer, Chunk([(1, memory)])).written[1]


EVERY_FIELD: dict[str, Any] = {
    "user_id": "alice",
    "agent_id": "a b",
    "run_id": "r\\1",
    "actor_id": "bob",
    "role": "user",
    "attributed_to": "assistant",
    "metadata": {"k": [1, "\\N", None], "tab": "\t", "o": {"x": 1.5}},
    "valid_from": "2026-01-01T00:00:00.123456Z",
    "valid_to": "9999-12-31T23:59:59.999999Z",
    "expires_at": "2027-01-01T00:00:00+08:00",
    "source_message_ids": ["m1", "m\\2"],
    "source_role": "user",
    "source_trust": "tool",
    "event_id": "e\\1",
    "event_part": 3,
}
HARD_TEXTS = [
    "Hello 👋 𠮷野家 👩‍👩‍👧",
    "e\u0301 and \u00e9",
    "\\N",
    "\\.",
    "a\\tb\\\\",
    "tab\tCR\rLF\nCR LF\r\n vertical\x0b form\x0c bell\x07",
    "שלום",
    "'; DROP TABLE memory; --",
    "%s %(tenant)s :tenant {x} $1",
    "\u2028\u2029\x85 lines",
    "a" * LIMITS.text_bytes,
    "茶" * (LIMITS.text_bytes // 3),
]


@pytest.mark.parametrize("verb", [add, bulk_one])
def test_a_record_is_kept_as_it_was_sent(store: Store, verb: Callable[..., Written]) -> None:
    """W-10, W-13: through a statement as through COPY."""
    writer = store.writer()
    sent = [new(text) for text in HARD_TEXTS] + [new("whole", **EVERY_FIELD)]
    for memory in sent:
        written = verb(writer, memory)
        held = get(store, written)
        assert held.text == memory.text
        assert (held.scope, held.metadata, held.kind) == (
            memory.scope,
            memory.metadata,
            memory.kind,
        )
        assert (held.actor_id, held.role, held.attributed_to) == (
            memory.actor_id,
            memory.role,
            memory.attributed_to,
        )
        assert (held.valid_from, held.valid_to, held.expires_at) == (
            memory.valid_from,
            memory.valid_to,
            memory.expires_at,
        )
        assert held.provenance == memory.provenance
        assert (held.version, held.rev, held.status) == (1, 1, Status.ACTIVE)
        assert held.created_at == held.updated_at
    store.check()


def test_both_ways_in_leave_the_same_rows(store: Store) -> None:
    """All but what is each record's own: id, salt, place and time."""
    writer = store.writer()
    whole = new("whole", **{**EVERY_FIELD, "event_id": None, "event_part": None})
    ids = [str(verb(writer, whole).memory_id) for verb in (add, bulk_one)]
    for table, own in (
        ("memory", "id salt created_at updated_at"),
        ("memory_version", "memory_id text_mac shard pos at"),
        ("outbox", "memory_id shard pos at"),
    ):
        found = store.query(f"SELECT to_jsonb(t) AS row FROM {table} t")
        one, other = [{n: v for n, v in f["row"].items() if n not in own.split()} for f in found]
        assert one == other
    assert len(set(ids)) == 2


NUMBERS = [0, -0.0, 1, 1.0, 0.1, 1e22, 1e308, -1e308, 5e-324, 2**53 + 1, 2**63 - 1, -(2**63) + 1]


@pytest.mark.parametrize("verb", [add, bulk_one])
def test_numbers_come_back_equal_and_can_be_sent(
    store: Store, verb: Callable[..., Written]
) -> None:
    """W-13: jsonb writes 1e308 as 309 digits, which no answer could hold as an integer."""
    written = verb(store.writer(), new(metadata={"n": NUMBERS}))
    held = get(store, written).metadata
    assert held == {"n": NUMBERS}
    assert orjson.loads(orjson.dumps(held)) == held
    assert facets(held) == facets({"n": NUMBERS})
    update(store.writer(), written.memory_id, Change(text="x"))
    assert get(store, written).metadata == held
    store.check()


def test_the_hash_of_a_text_is_over_its_composed_form(store: Store) -> None:
    """W-10."""
    writer = store.writer()
    texts = ["caf\u00e9", "cafe\u0301"]
    for text in texts:
        add(writer, new(text))
        bulk_one(writer, new(text))
    held = store.query("SELECT text, content_hash FROM memory")
    assert len({row["content_hash"] for row in held}) == 1
    assert {row["text"] for row in held} == set(texts)


def test_ids_at_their_bound_fit_every_key(store: Store) -> None:
    """S-08: 256 characters of four bytes each, which no compression makes shorter."""
    bound = [chr(0x20000 + (n * 7919) % 42_000) for n in range(256 * 6)]
    ids = iter("".join(bound[n : n + 256]) for n in range(0, len(bound), 256))
    tenant = next(ids)
    writer = store.writer(tenant)
    fields: dict[str, Any] = {"user_id": next(ids), "agent_id": next(ids), "run_id": next(ids)}
    memory = new(caller=writer.caller, **fields, event_id=next(ids))
    for verb in (add, bulk_one):
        assert verb(writer, memory).version == 1
    assert delete_scope(writer, Scope(tenant, **fields)).count == 1
    store.check()


# One record ---------------------------------------------------------------------------------


class TestUpdates:
    def test_what_is_not_named_stays(self, store: Store) -> None:
        """L-15."""
        writer = store.writer()
        written = add(
            writer,
            new(
                metadata={"category": "travel", "priority": 2},
                valid_from="2026-01-01T00:00:00Z",
                expires_at="2030-01-01T00:00:00Z",
            ),
        )
        before = get(store, written)
        update(writer, written.memory_id, Change(text="new text"))
        after = get(store, written)
        same = replace(after, text=before.text, version=1, rev=1, updated_at=before.updated_at)
        assert same == before
        assert after.text == "new text"

    def test_metadata_is_replaced_as_a_whole(self, store: Store) -> None:
        """L-15."""
        writer = store.writer()
        written = add(writer, new(metadata={"category": "travel", "priority": 2}))
        steps: list[dict[str, Any]] = [{"priority": 3}, {"priority": None}, {}]
        for given in steps:
            update(writer, written.memory_id, Change(metadata=given))
            assert get(store, written).metadata == given
        assert store.one("SELECT metadata FROM memory_version WHERE version = 3") == steps[1]
        store.check()

    def test_the_text_and_its_hash_go_together(self, store: Store) -> None:
        writer = store.writer()
        written = add(writer, new("old"))
        update(writer, written.memory_id, Change(text="new"))
        assert store.one("SELECT content_hash FROM memory") == rows.content_hash("new")

    def test_each_versions_mac_is_of_its_own_content(self, store: Store) -> None:
        """P10: a version whose content did not change keeps the MAC of the one before."""
        writer = store.writer()
        for verb in (add, bulk_one):
            written = verb(writer, new("old"))
            update(writer, written.memory_id, Change(metadata={"a": 1}))
            update(writer, written.memory_id, Change(text="new"))
            delete(writer, written.memory_id)
        salts = {r["id"]: r["salt"].bytes for r in store.query("SELECT id, salt FROM memory")}
        versions = store.query("SELECT * FROM memory_version")
        assert len(versions) == 8
        for row in versions:
            assert row["text_mac"] == rows.content_mac(
                rows.to_version(row), salts[row["memory_id"]]
            )
        assert len({row["text_mac"] for row in versions}) == 6  # the salt is each record's own

    def test_a_conflict_names_the_current_version_and_writes_nothing(self, store: Store) -> None:
        """W-07."""
        writer = store.writer()
        written = add(writer, new())
        update(writer, written.memory_id, Change(text="x"), expected_version=1)
        before = store.rows()
        commands: list[Callable[[], object]] = [
            lambda: update(writer, written.memory_id, Change(text="y"), expected_version=1),
            lambda: delete(writer, written.memory_id, expected_version=3),
            lambda: supersede(writer, written.memory_id, new(), expected_version=1),
        ]
        for command in commands:
            with pytest.raises(VersionConflictError) as caught:
                command()
            assert caught.value.current == 2
        assert store.rows() == before

    def test_a_time_that_does_not_fit_the_records_own_is_refused(self, store: Store) -> None:
        writer = store.writer()
        written = add(writer, new(valid_from="2026-01-01T00:00:00Z"))
        before = store.rows()
        with pytest.raises(InvalidInputError):
            update(writer, written.memory_id, Change(valid_to=datetime(2025, 1, 1, tzinfo=UTC)))
        assert store.rows() == before


def test_concurrent_updates_have_one_winner(store: Store) -> None:
    """W-07: the losers leave no hole; each is told the current version."""
    writer = store.writer()
    written = add(writer, new())
    answers = at_once(
        [
            partial(update, writer, written.memory_id, Change(text=f"{n}"), expected_version=1)
            for n in range(8)
        ]
    )
    won = [answer for answer in answers if isinstance(answer, Written)]
    lost = [answer for answer in answers if isinstance(answer, VersionConflictError)]
    assert (len(won), len(lost)) == (1, 7)
    assert won[0].version == 2
    assert {answer.current for answer in lost} == {2}
    assert store.one("SELECT count(*) FROM outbox") == 2
    store.check()


def test_concurrent_updates_without_a_version_are_one_after_the_other(store: Store) -> None:
    writer = store.writer()
    written = add(writer, new())
    answers = at_once(
        [partial(update, writer, written.memory_id, Change(text=f"text {n}")) for n in range(8)]
    )
    assert sorted(a.version for a in answers if isinstance(a, Written)) == list(range(2, 10))
    store.check()


def test_deletes_and_updates_at_once_never_revive_a_record(store: Store) -> None:
    """L-11: one delete wins; what comes behind it is told that the record is gone."""
    writer = store.writer()
    for _ in range(5):
        written = add(writer, new())
        commands: list[Callable[[], Any]] = [
            partial(delete, writer, written.memory_id),
            partial(update, writer, written.memory_id, Change(text="x")),
            partial(supersede, writer, written.memory_id, new("newer")),
        ] * 2
        answers = at_once(commands)
        refusals = [a for a in answers if isinstance(a, Exception)]
        assert {type(a) for a in refusals} <= {NotFoundError, StatusConflictError}
        assert len([a for a in answers[::3] if isinstance(a, Written)]) == 1
        assert get(store, written).status is Status.DELETED
    store.check()


class TestDeletes:
    def test_a_delete_keeps_text_and_history(self, store: Store) -> None:
        """L-17."""
        writer = store.writer()
        written = add(writer, new("keep me"))
        gone = delete(writer, written.memory_id, why="asked")
        held = get(store, written)
        assert (gone.version, held.status, held.text) == (2, Status.DELETED, "keep me")
        assert held.tombstone == Tombstone(held.updated_at, "tester", "asked")
        last = CanonicalReader(store.api).history(TENANT, written.memory_id)[-1]
        assert (last.op, last.status, last.by, last.why) == (
            Op.DELETE,
            Status.DELETED,
            "tester",
            "asked",
        )
        store.check()

    def test_what_is_not_there_is_not_found(self, store: Store) -> None:
        writer, theirs = store.writer(), store.writer("t2")
        foreign = add(theirs, new(caller=theirs.caller)).memory_id
        gone = add(writer, new()).memory_id
        delete(writer, gone)
        before = store.rows()
        for memory_id in (MISSING, foreign, gone):
            commands: list[Callable[[], object]] = [
                partial(delete, writer, memory_id),
                partial(update, writer, memory_id, Change(text="x")),
                partial(supersede, writer, memory_id, new()),
            ]
            for command in commands:
                with pytest.raises(NotFoundError):
                    command()
        assert store.rows() == before


class TestSupersede:
    def test_the_older_ends_where_the_newer_begins(self, store: Store) -> None:
        """L-16."""
        writer = store.writer()
        first = add(writer, new("lives in Lisbon"))
        older, newer = supersede(
            writer, first.memory_id, new("lives in Porto", valid_from="2026-06-01T00:00:00Z")
        )
        old, now = get(store, older), get(store, newer)
        assert (older.memory_id, older.version, newer.version) == (first.memory_id, 2, 1)
        assert (old.status, old.superseded_by) == (Status.SUPERSEDED, now.id)
        assert old.valid_to == now.valid_from == datetime(2026, 6, 1, tzinfo=UTC)
        assert now.links == (Link("supersedes", old.id),)
        assert (old.text, now.text) == ("lives in Lisbon", "lives in Porto")
        ops = store.query("SELECT op FROM outbox ORDER BY at, op")
        assert [row["op"] for row in ops] == ["add", "add", "supersede"]
        store.check()

    def test_a_chain_of_facts(self, store: Store) -> None:
        writer = store.writer()
        head = add(writer, new("0"))
        chain = [head.memory_id]
        for n in range(1, 4):
            _, head = supersede(writer, head.memory_id, new(str(n)))
            chain.append(head.memory_id)
        with pytest.raises(StatusConflictError, match=str(chain[1])):
            supersede(writer, chain[0], new("again"))
        held = [CanonicalReader(store.api).get(TENANT, memory_id) for memory_id in chain]
        assert [r.superseded_by for r in held] == [*chain[1:], None]
        assert [r.valid_to for r in held[:3]] == [r.created_at for r in held[1:]]
        store.check()

    def test_it_is_listed_as_of_its_time_and_when_it_is_asked_for(self, store: Store) -> None:
        """P6: hidden by default, shown as of a time at which it held, and to who asks for it."""
        writer, reader = store.writer(), CanonicalReader(store.api)
        first = add(writer, new("lives in Lisbon"))
        _, newer = supersede(writer, first.memory_id, new("lives in Porto"))
        moved = get(store, newer).created_at
        later = moved + timedelta(hours=1)
        plain = Visible(scope=Scope(TENANT, user_id="alice"), now=later, as_of=later)
        for visible, shown in (
            (plain, ["lives in Porto"]),
            (replace(plain, include_superseded=True), ["lives in Porto", "lives in Lisbon"]),
            (replace(plain, as_of=moved), ["lives in Porto"]),
            (replace(plain, as_of=moved - timedelta(microseconds=1)), SINCE_EVER),
        ):
            found, _ = reader.page(visible, after=None, limit=10)
            assert {record.text for record in found} == set(shown), visible
            assert reader.count(visible) == len(shown)

    def test_of_two_at_once_one_is_told_of_the_other(self, store: Store) -> None:
        writer = store.writer()
        first = add(writer, new())
        answers = at_once(
            [partial(supersede, writer, first.memory_id, new(f"newer {n}")) for n in range(4)]
        )
        assert sorted(type(answer).__name__ for answer in answers) == [
            *["StatusConflictError"] * 3,
            "tuple",
        ]
        assert store.one("SELECT count(*) FROM memory") == 2
        store.check()


def test_history_is_every_version_in_order(store: Store) -> None:
    """L-14, L-17: each with its writer, its reason and its place in the log."""
    writer = store.writer()
    written = [add(writer, new("one", metadata={"n": 1}))]
    memory_id = written[0].memory_id
    written.append(update(writer, memory_id, Change(text="two")))
    written.append(update(store.writer(name="other"), memory_id, Change(metadata={"n": 2})))
    written.append(delete(store.writer(name=None), memory_id, why="asked"))
    found = CanonicalReader(store.api).history(TENANT, memory_id)
    assert [(v.version, v.op, v.text, v.metadata, v.by, v.why) for v in found] == [
        (1, Op.ADD, "one", {"n": 1}, "tester", None),
        (2, Op.UPDATE, "two", {"n": 1}, "tester", None),
        (3, Op.UPDATE, "two", {"n": 2}, "other", None),
        (4, Op.DELETE, "two", {"n": 2}, None, "asked"),
    ]
    assert [(v.version, v.shard, v.pos) for v in found] == [
        (w.version, w.shard, w.pos) for w in written
    ]
    with pytest.raises(NotFoundError):
        CanonicalReader(store.api).history("t2", memory_id)


def test_what_newer_code_has_written_of_a_source_does_not_stop_a_read(store: Store) -> None:
    """S-04: nor does a row that was put there by hand."""
    written = add(store.writer(), new(source_role="user"))
    with store.as_owner() as conn:
        conn.execute("""UPDATE memory SET provenance = provenance || '{"later": 1}',
                               metadata = metadata || '{"created_at": 1700000000}'""")
    held = get(store, written)
    assert held.provenance == replace(NO_PROVENANCE, source_role="user")
    update(store.writer(), written.memory_id, Change(text="x"))
    assert get(store, written).text == "x"


# All of a scope -----------------------------------------------------------------------------


def live(store: Store) -> set[str]:
    return {row["text"] for row in store.query("SELECT text FROM memory WHERE status <> 'deleted'")}


@pytest.mark.parametrize(
    ("scope", "stays"),
    [
        ({"user_id": "u1"}, "u2 u2r1 r1 a1 t2u1"),
        ({"run_id": "r1"}, "u1 u2 u1a1 a1 t2u1"),
        ({"agent_id": "a1"}, "u1 u1r1 u2 u2r1 r1 t2u1"),
        ({"user_id": "u1", "run_id": "r1"}, "u1 u2 u2r1 u1a1 r1 a1 t2u1"),
        ({"user_id": "U1"}, "u1 u1r1 u2 u2r1 u1a1 r1 a1 t2u1"),
        ({"user_id": "u%"}, "u1 u1r1 u2 u2r1 u1a1 r1 a1 t2u1"),
        ({"user_id": "u_"}, "u1 u1r1 u2 u2r1 u1a1 r1 a1 t2u1"),
        ({"user_id": "r1"}, "u1 u1r1 u2 u2r1 u1a1 r1 a1 t2u1"),
    ],
)
def test_exactly_the_scopes_records_are_deleted(
    store: Store, scope: dict[str, str], stays: str
) -> None:
    """L-03, S-01, S-08, S-11, S-15."""
    owners: dict[str, dict[str, Any]] = {
        "u1": {"user_id": "u1"},
        "u1r1": {"user_id": "u1", "run_id": "r1"},
        "u2": {"user_id": "u2"},
        "u2r1": {"user_id": "u2", "run_id": "r1"},
        "u1a1": {"user_id": "u1", "agent_id": "a1"},
        "r1": {"run_id": "r1"},
        "a1": {"agent_id": "a1"},
    }
    writer, theirs = store.writer(), store.writer("t2")
    for text, owner in owners.items():
        add(writer, new(text, **owner))
    add(theirs, new("t2u1", caller=theirs.caller, user_id="u1"))
    done = delete_scope(writer, Scope(TENANT, **scope), why="asked")
    assert live(store) == set(stays.split())
    assert done.count == 8 - len(stays.split())
    assert delete_scope(writer, Scope(TENANT, **scope)).count == 0
    store.check()


def test_a_writer_deletes_in_its_own_tenant_only(store: Store) -> None:
    """P5: even when it is handed the scope of another one."""
    writer, theirs = store.writer(), store.writer("t2")
    add(theirs, new("t2", caller=theirs.caller))
    assert delete_scope(writer, Scope("t2", user_id="alice")).count == 0
    assert live(store) == {"t2"}


def fill(writer: Writer, count: int, **owner: Any) -> None:
    for start in range(0, count, 1_000):
        lines = [(n, new(f"text {n}", **owner)) for n in range(start, min(start + 1_000, count))]
        add_chunk(writer, Chunk(lines))


def test_more_than_a_transactions_records_are_deleted(store: Store) -> None:
    """L-03: superseded ones as well; the answer names each shard's last position."""
    writer = store.writer()
    fill(writer, 2_100, user_id="u1")
    fill(writer, 10, user_id="u2")
    first = store.query("SELECT id FROM memory WHERE user_id = 'u1' ORDER BY id LIMIT 1")[0]["id"]
    supersede(writer, first, new("newer", user_id="u1"))
    done = delete_scope(writer, Scope(TENANT, user_id="u1"), why="asked")
    assert done.count == 2_101
    assert store.one("SELECT count(*) FROM memory WHERE status = 'deleted'") == 2_101
    assert store.one("SELECT count(*) FROM memory WHERE status = 'active'") == 10
    last = store.query("SELECT shard, max(pos) AS pos FROM outbox WHERE op = 'delete' GROUP BY 1")
    assert {w.shard: w.pos for w in done.written} == {row["shard"]: row["pos"] for row in last}
    store.check()


def in_small_pages(monkeypatch: pytest.MonkeyPatch, between: Callable[[], None]) -> None:
    """Delete page by page of 10, with something happening between the pages."""
    plain = changes._delete_page

    def page(writer: Writer, bounds: changes.ScopePage) -> changes.PageDeleted:
        done = plain(writer, bounds)
        between()
        return done

    monkeypatch.setattr(changes, "SCOPE_PAGE", 10)
    monkeypatch.setattr(changes, "_delete_page", page)


def test_records_added_meanwhile_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """L-03: also those of a server whose clock is behind, or whose ids would sort first."""
    writer = store.writer()
    behind = Writer(store.api, writer.caller, FixedPast())
    fill(writer, 35, user_id="u1")
    added: list[Written] = []

    def between() -> None:
        added.append(add(behind, new("meanwhile", user_id="u1")))
        added.append(bulk_one(behind, new("meanwhile", user_id="u1")))

    in_small_pages(monkeypatch, between)
    assert delete_scope(writer, Scope(TENANT, user_id="u1")).count == 35
    assert {get(store, one).status for one in added} == {Status.ACTIVE}
    store.check()


class FixedPast:
    def now(self) -> datetime:
        return NOW - timedelta(days=1)


def test_records_of_a_server_whose_clock_is_ahead_are_deleted(store: Store) -> None:
    """What was acknowledged before the call is deleted by it, whatever the clocks say."""
    ahead = Writer(store.api, store.writer().caller, FixedFuture())
    add(ahead, new())
    assert delete_scope(store.writer(), Scope(TENANT, user_id="alice")).count == 1
    store.check()


class FixedFuture:
    def now(self) -> datetime:
        return NOW + timedelta(days=1)


def test_a_page_that_another_has_deleted_does_not_end_the_work(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two deletes at once, one of which is cut off: the other one's promise holds."""
    writer = store.writer()
    fill(writer, 50, user_id="u1")
    in_small_pages(monkeypatch, lambda: None)
    lock = records.lock
    others = iter(store.query("SELECT id FROM memory ORDER BY id LIMIT 10"))

    def lock_late(conn: Any, tenant: str, ids: list[UUID]) -> Any:
        for row in others:  # between the listing of the first page and its locks
            monkeypatch.setattr(records, "lock", lock)
            delete(writer, row["id"])
        return lock(conn, tenant, ids)

    monkeypatch.setattr(records, "lock", lock_late)
    assert delete_scope(writer, Scope(TENANT, user_id="u1")).count == 40
    assert live(store) == set()
    store.check()
