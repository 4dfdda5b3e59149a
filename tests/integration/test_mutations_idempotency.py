"""The same command again gives the same answer and no second effect, whoever repeats it."""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from canonical.domain.answers import Batch, Refused, Written
from canonical.domain.commands import Change, NewMemory
from canonical.domain.scope import Scope
from canonical.errors import (
    MutationConflictError,
    NotFoundError,
    StatusConflictError,
    StoreUnavailableError,
)
from canonical.mutations import change as changes
from canonical.mutations.add import add
from canonical.mutations.bulk import Chunk, add_chunk
from canonical.mutations.change import ScopeDeleted, delete, delete_scope, supersede, update
from canonical.mutations.writer import Writer
from tests.support.builders import ALICE, TENANT, Store, at_once, key, new, until

TWINS = 8
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
_ids = count(1)


def plain(answer: Any) -> Any:
    """Return an answer without the mark that it is a repeat."""
    match answer:
        case Written():
            return replace(answer, replayed=False)
        case Batch(written, refused):
            return {line: plain(one) for line, one in written.items()}, refused
        case ScopeDeleted(count, written):
            return count, {one.shard: plain(one) for one in written}
        case tuple():
            return tuple(plain(one) for one in answer)
        case _:
            raise answer


def is_replayed(answer: Any) -> bool:
    match answer:
        case tuple():
            return all(one.replayed for one in answer)
        case Written() | Batch() | ScopeDeleted():
            return answer.replayed
        case _:
            raise answer


# Each makes a command, with the key `m`, that can be sent again as it is.
Command = Callable[[], Any]


def an_add(writer: Writer) -> Command:
    return lambda: add(writer, new("likes tea"), key("m", "add", "tea"))


def a_bulk(writer: Writer) -> Command:
    items = [(line, new(f"line {line}")) for line in (1, 3, 4)]
    chunk = Chunk(items, (Refused(2, "invalid_input", "x", "y", "text"),), size=1_000)
    return lambda: add_chunk(writer, chunk, key("m", "bulk", "lines"))


def a_list(writer: Writer) -> Command:
    chunk = Chunk([(n, new(f"item {n}")) for n in range(3)], all_or_none=True)
    return lambda: add_chunk(writer, chunk, key("m", "list", "items"))


def an_update(writer: Writer) -> Command:
    held = add(writer, new())
    change = Change(text="new text")
    return lambda: update(
        writer, held.memory_id, change, key("m", "update", "x"), expected_version=1
    )


def a_delete(writer: Writer) -> Command:
    held = add(writer, new())
    return lambda: delete(writer, held.memory_id, key("m", "delete", "x"), why="asked")


def a_supersede(writer: Writer) -> Command:
    held = add(writer, new())
    return lambda: supersede(writer, held.memory_id, new("dives"), key("m", "supersede", "x"))


def a_scopes_delete(writer: Writer) -> Command:
    for n in range(3):
        add(writer, new(f"text {n}"))
    return lambda: delete_scope(writer, ALICE, key("m", "delete_scope", "x"), why="asked")


VERBS = [an_add, a_bulk, a_list, an_update, a_delete, a_supersede, a_scopes_delete]


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_sent_again_answers_as_before(
    store: Store, verb: Callable[[Writer], Command]
) -> None:
    """W-01: four times in a row."""
    command = verb(store.writer())
    first = command()
    after = store.rows()
    assert not is_replayed(first)
    for _ in range(4):
        again = command()
        assert plain(again) == plain(first)
        assert is_replayed(again)
    assert store.rows() == after
    store.check()


@pytest.mark.parametrize("verb", VERBS)
def test_twins_at_the_same_moment_have_one_effect(
    store: Store, verb: Callable[[Writer], Command]
) -> None:
    """W-01, W-03 a: 8 threads, 8 connections."""
    command = verb(store.writer())
    events = store.one("SELECT count(*) FROM outbox")
    answers = at_once([command] * TWINS)
    assert len({repr(plain(answer)) for answer in answers}) == 1
    assert sorted(is_replayed(answer) for answer in answers) == [False] + [True] * (TWINS - 1)
    once = {"a_bulk": 3, "a_list": 3, "a_supersede": 2, "a_scopes_delete": 3}.get(verb.__name__, 1)
    assert store.one("SELECT count(*) FROM outbox") == events + once
    store.check()


def test_equal_texts_under_keys_of_their_own_are_records_of_their_own(store: Store) -> None:
    """W-03 b, W-04: a text's hash is no key."""
    writer = store.writer()

    def command() -> Written:
        mutation = key(f"m-{next(_ids)}", "add", "same")
        return add(writer, new("Mara Lind swims before work"), mutation)

    answers = at_once([command] * TWINS)
    assert len({answer.memory_id for answer in answers if isinstance(answer, Written)}) == TWINS
    assert store.one("SELECT count(DISTINCT content_hash) FROM memory") == 1
    store.check()


@pytest.mark.parametrize("verb", VERBS)
def test_a_key_is_good_for_one_command(store: Store, verb: Callable[[Writer], Command]) -> None:
    """W-02: any other command under it is refused and changes nothing."""
    writer = store.writer()
    verb(writer)()
    other = add(writer, new())
    before = store.rows()
    commands: list[Command] = [
        lambda: add(writer, new("likes coffee"), key("m", "add", "coffee")),
        lambda: add_chunk(writer, Chunk([(1, new())]), key("m", "bulk", "coffee")),
        lambda: update(writer, other.memory_id, Change(text="x"), key("m", "update", "y")),
        lambda: delete(writer, other.memory_id, key("m", "delete", "y")),
        lambda: supersede(writer, other.memory_id, new(), key("m", "supersede", "y")),
        lambda: delete_scope(writer, ALICE, key("m", "delete_scope", "y")),
    ]
    for command in commands:
        with pytest.raises(MutationConflictError):
            command()
    assert store.rows() == before
    store.check()


def test_the_first_body_still_gets_the_first_answer(store: Store) -> None:
    """W-02: after the record has changed, and after it is gone."""
    writer = store.writer()
    tea = an_add(writer)
    first = tea()
    changed = update(writer, first.memory_id, Change(text="likes coffee"), key("u", "update", 1))
    assert plain(tea()) == first
    delete(writer, first.memory_id)
    assert plain(tea()) == first
    again = update(writer, first.memory_id, Change(text="likes coffee"), key("u", "update", 1))
    assert plain(again) == changed
    store.check()


def test_a_key_is_a_tenants_own(store: Store) -> None:
    """S-16."""
    one = an_add(store.writer("t1"))()
    other = add(store.writer("t2"), new(caller=store.writer("t2").caller), key("m", "add", "tea"))
    assert one.memory_id != other.memory_id
    store.check()


def test_a_refused_command_leaves_its_key_free(store: Store) -> None:
    writer = store.writer()
    held = add(writer, new())
    gone = add(writer, new())
    delete(writer, gone.memory_id)
    with pytest.raises(NotFoundError):
        update(writer, gone.memory_id, Change(text="x"), key("m", "update", gone.memory_id))
    done = update(writer, held.memory_id, Change(text="x"), key("m", "update", held.memory_id))
    assert (done.version, done.replayed) == (2, False)
    store.check()


# Source events ------------------------------------------------------------------------------


def evented(event: str = "e1", text: str = "swims", **fields: Any) -> NewMemory:
    return new(text, event_id=event, **fields)


def one_line(writer: Writer, memory: NewMemory, mutation: Any = None) -> Written:
    batch = add_chunk(writer, Chunk([(1, memory)]), mutation)
    if batch.refused:
        raise MutationConflictError(batch.refused[0].message)
    return batch.written[1]


def by_supersede(writer: Writer, memory: NewMemory, mutation: Any = None) -> Written:
    scope: dict[str, Any] = dict(memory.scope.named())
    held = add(writer, new("older", **scope))
    return supersede(writer, held.memory_id, memory, mutation)[1]


@pytest.mark.parametrize("again", [add, one_line])
@pytest.mark.parametrize("first", [add, one_line, by_supersede])
def test_a_source_event_makes_one_record(
    store: Store, first: Callable[..., Written], again: Callable[..., Written]
) -> None:
    """P4: whichever verb brought it first, and whichever brings it again."""
    writer = store.writer()
    made = first(writer, evented())
    before = store.rows()
    repeat = again(writer, evented())
    assert (plain(repeat), repeat.replayed) == (plain(made), True)
    for other in (evented(text="dives"), evented(metadata={"a": 1}), evented(run_id="r")):
        with pytest.raises(MutationConflictError):
            again(writer, other)
    assert store.rows() == before
    store.check()


def test_what_makes_another_body_of_a_source_event(store: Store) -> None:
    writer = store.writer()
    whole: dict[str, Any] = {
        "user_id": "alice",
        "agent_id": "a",
        "metadata": {"a": 1},
        "actor_id": "bob",
        "role": "user",
        "attributed_to": "user",
        "valid_from": "2026-01-01T00:00:00Z",
        "valid_to": "2026-02-01T00:00:00Z",
        "expires_at": "2027-01-01T00:00:00Z",
        "source_message_ids": ["m1"],
        "source_role": "user",
        "source_trust": "tool",
    }
    made = add(writer, evented(**whole))
    assert plain(add(writer, evented(**whole))) == made
    # Trust is capped by the key that is presented: another key isn't another event.
    assert plain(add(writer, evented(**{**whole, "source_trust": "user"}))) == made
    for name in whole.keys() - {"source_trust"}:
        rest = {n: value for n, value in whole.items() if n != name}
        if name == "user_id":
            rest["run_id"] = "r"
        with pytest.raises(MutationConflictError):
            add(writer, evented(**rest))
    store.check()


def test_the_parts_of_a_source_event_are_records_of_their_own(store: Store) -> None:
    writer = store.writer()
    parts = [add(writer, evented(event_part=n)) for n in range(3)]
    assert len({part.memory_id for part in parts}) == 3
    assert plain(add(writer, evented(event_part=1))) == parts[1]
    assert plain(add(writer, evented())) == parts[0]
    store.check()


@pytest.mark.parametrize("verb", [add, one_line])
def test_twins_of_a_source_event_make_one_record(
    store: Store, verb: Callable[..., Written]
) -> None:
    """W-03: without a key, and with a key of each."""
    writer = store.writer()
    answers = at_once([lambda: verb(writer, evented())] * TWINS)
    assert len({plain(answer).memory_id for answer in answers}) == 1

    def keyed() -> Written:
        return verb(writer, evented("e2"), key(f"k-{next(_ids)}", "add", "swims"))

    assert len({plain(answer).memory_id for answer in at_once([keyed] * TWINS)}) == 1
    assert store.one("SELECT count(*) FROM memory") == 2
    assert store.one("SELECT count(*) FROM outbox") == 2
    assert store.one("SELECT count(*) FROM mutation") == TWINS  # each key has its answer
    store.check()


def test_twins_that_bind_a_new_key_to_an_old_event_get_one_answer(store: Store) -> None:
    writer = store.writer()
    made = add(writer, evented())
    for round_ in range(5):
        mutation = key(f"late-{round_}", "add", "swims")
        answers = at_once([partial(add, writer, evented(), mutation)] * TWINS)
        assert [plain(answer) for answer in answers] == [made] * TWINS
    assert store.one("SELECT count(*) FROM mutation") == 5
    store.check()


class TestSupersedeBySourceEvent:
    """Without a mutation's key, the event is what makes a repeat harmless."""

    def test_a_repeat_answers_as_before(self, store: Store) -> None:
        writer = store.writer()
        held = add(writer, new())
        first = supersede(writer, held.memory_id, evented())
        before = store.rows()
        again = supersede(writer, held.memory_id, evented())
        assert plain(again) == first
        assert is_replayed(again)
        assert store.rows() == before
        delete(writer, held.memory_id)
        assert plain(supersede(writer, held.memory_id, evented())) == first
        assert plain(supersede(writer, held.memory_id, evented(), key("k", "s", 1))) == first
        assert plain(supersede(writer, held.memory_id, evented(), key("k", "s", 1))) == first
        store.check()

    def test_twins_have_one_effect(self, store: Store) -> None:
        writer = store.writer()
        held = add(writer, new())
        command = lambda: supersede(writer, held.memory_id, evented())  # noqa: E731
        answers = at_once([command] * TWINS)
        assert len({plain(answer) for answer in answers}) == 1
        assert store.one("SELECT count(*) FROM memory") == 2
        store.check()

    def test_another_body_or_another_record_is_refused(self, store: Store) -> None:
        writer = store.writer()
        held, other = add(writer, new()), add(writer, new())
        supersede(writer, held.memory_id, evented())
        before = store.rows()
        with pytest.raises(MutationConflictError):
            supersede(writer, held.memory_id, evented(text="dives"))
        with pytest.raises(MutationConflictError):
            supersede(writer, other.memory_id, evented())
        with pytest.raises(StatusConflictError):
            supersede(writer, held.memory_id, evented("e2"))
        assert store.rows() == before
        store.check()

    def test_an_event_of_a_plain_add_supersedes_nothing(self, store: Store) -> None:
        writer = store.writer()
        held = add(writer, new())
        add(writer, evented())
        with pytest.raises(MutationConflictError):
            supersede(writer, held.memory_id, evented())
        store.check()


class TestBulks:
    def test_lines_of_one_source_event_share_its_record(self, store: Store) -> None:
        """The earlier line is the one that writes."""
        lines = [
            (1, evented("e1")),
            (2, new("plain")),
            (4, evented("e1")),
            (5, evented("e1", "another body")),
            (6, evented("e1", event_part=1)),
        ]
        batch = add_chunk(store.writer(), Chunk(lines), key("m", "bulk", "x"))
        assert list(batch.written) == [1, 2, 4, 6]
        assert plain(batch.written[4]) == batch.written[1]
        assert [batch.written[n].replayed for n in (1, 2, 4, 6)] == [False, False, True, False]
        assert [(r.line, r.code) for r in batch.refused] == [(5, "mutation_conflict")]
        again = add_chunk(store.writer(), Chunk(lines), key("m", "bulk", "x"))
        assert plain(again) == plain(batch)
        assert store.one("SELECT count(*) FROM memory") == 3
        store.check()

    def test_a_line_whose_event_came_before_answers_as_it_did(self, store: Store) -> None:
        writer = store.writer()
        made = add(writer, evented())
        lines = [(1, new("plain")), (2, evented()), (3, evented("e3"))]
        batch = add_chunk(writer, Chunk(lines))
        assert plain(batch.written[2]) == made
        # without a key, the lines without an event are written again, the others are not
        again = add_chunk(writer, Chunk(lines))
        assert plain(again.written[3]) == batch.written[3]
        assert again.written[1].memory_id != batch.written[1].memory_id
        assert store.one("SELECT count(*) FROM memory") == 4
        store.check()

    def test_crossed_bulks_of_the_same_events_both_answer(self, store: Store) -> None:
        """W-11: in opposite order, and no deadlock reaches the caller."""
        writer = store.writer()
        for round_ in range(5):
            events = [evented(f"r{round_}-{n}", f"text {n}") for n in range(40)]
            up = Chunk(list(enumerate(events)))
            down = Chunk(list(enumerate(reversed(events))))
            one, other = at_once([partial(add_chunk, writer, c) for c in (up, down)])
            assert isinstance(one, Batch)
            assert isinstance(other, Batch)
            for n in range(40):
                assert plain(one.written[n]) == plain(other.written[39 - n])
        assert store.one("SELECT count(*) FROM memory") == 200
        store.check()

    def test_chunks_are_repeated_one_by_one(self, store: Store) -> None:
        writer = store.writer()
        chunks = [Chunk([(n, new(f"{c}/{n}")) for n in range(3)], size=3) for c in range(3)]
        answers = [
            add_chunk(writer, chunk, key("m", "bulk", c, chunk=c)) for c, chunk in enumerate(chunks)
        ]
        for c in (2, 0, 1):
            again = add_chunk(writer, chunks[c], key("m", "bulk", c, chunk=c))
            assert plain(again) == plain(answers[c])
        assert store.one("SELECT count(*) FROM memory") == 9
        store.check()

    def test_a_chunk_is_cut_as_it_was_before(self, store: Store) -> None:
        writer = store.writer()
        lines = [(1, new())]
        add_chunk(writer, Chunk(lines, size=1_000), key("m", "bulk", "x"))
        with pytest.raises(MutationConflictError, match="chunks of 1000 lines"):
            add_chunk(writer, Chunk(lines, size=500), key("m", "bulk", "x"))
        store.check()

    def test_a_refused_line_is_refused_as_before(self, store: Store) -> None:
        """W-14: also when the limits have changed since, and the line would pass now."""
        writer = store.writer()
        said = Refused(2, "too_large", "text: 9 bytes", "Send less.", "text")
        chunk = Chunk([(1, new("good"))], (said,))
        first = add_chunk(writer, chunk, key("m", "bulk", "x"))
        assert add_chunk(writer, chunk, key("m", "bulk", "x")).refused == first.refused == (said,)
        wider = Chunk([(1, new("good")), (2, new("too long"))])
        again = add_chunk(writer, wider, key("m", "bulk", "x"))
        assert plain(again)[0] == plain(first)[0]
        assert [(r.line, r.code) for r in again.refused] == [(2, "too_large")]
        store.check()

    def test_a_chunk_of_refused_lines_alone_is_kept_too(self, store: Store) -> None:
        said = Refused(1, "invalid_input", "text: is blank", "Change it.", "text")
        first = add_chunk(store.writer(), Chunk([], (said,)), key("m", "bulk", "x"))
        again = add_chunk(store.writer(), Chunk([], (said,)), key("m", "bulk", "x"))
        assert (first.written, first.refused, first.replayed) == ({}, (said,), False)
        assert (again.written, again.refused, again.replayed) == ({}, (said,), True)
        store.check()

    def test_a_list_is_written_whole_or_not_at_all(self, store: Store) -> None:
        """P4: a source event that came with another body refuses every item."""
        writer = store.writer()
        add(writer, evented())
        before = store.rows()
        items = [(0, new("good")), (1, evented(text="another body")), (2, new("good"))]
        with pytest.raises(MutationConflictError, match="memory 1"):
            add_chunk(writer, Chunk(items, all_or_none=True), key("m", "list", "x"))
        assert store.rows() == before
        items[1] = (1, evented())
        batch = add_chunk(writer, Chunk(items, all_or_none=True), key("m", "list", "y"))
        assert [one.replayed for one in batch.written.values()] == [False, True, False]
        store.check()


class TestScopeDeletes:
    """A repeat deletes what the first call was to delete, and nothing that came later."""

    KEY = key("m", "delete_scope", "alice")
    RECORDS = 35

    @pytest.fixture(autouse=True)
    def _in_small_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Four transactions, the last of which is not full."""
        monkeypatch.setattr(changes, "SCOPE_PAGE", 10)

    def fill(self, writer: Writer, text: str = "old") -> None:
        add_chunk(writer, Chunk([(n, new(text)) for n in range(self.RECORDS)]))

    def live(self, store: Store) -> set[str]:
        rows = store.query("SELECT DISTINCT text FROM memory WHERE status <> 'deleted'")
        return {row["text"] for row in rows}

    def test_what_was_added_since_stays(self, store: Store) -> None:
        writer = store.writer()
        self.fill(writer)
        first = delete_scope(writer, ALICE, self.KEY)
        self.fill(writer, "newer")
        before = store.rows()
        again = delete_scope(writer, ALICE, self.KEY)
        assert plain(again) == plain(first)
        assert (first.replayed, first.repeated) == (False, 0)
        assert (again.replayed, again.repeated) == (True, self.RECORDS)
        assert store.rows() == before
        assert delete_scope(writer, ALICE, key("n", "delete_scope", "alice")).count == self.RECORDS
        assert self.live(store) == set()
        store.check()

    @pytest.mark.parametrize("records", [0, 10, 20])
    def test_the_end_is_kept_where_it_was(self, store: Store, records: int) -> None:
        """Of an empty scope, and of one that ends with a full page."""
        writer = store.writer()
        for _ in range(records):
            add(writer, new("old"))
        assert delete_scope(writer, ALICE, self.KEY).count == records
        add(writer, new("newer"))
        again = delete_scope(writer, ALICE, self.KEY)
        assert (again.count, again.replayed) == (records, True)
        assert self.live(store) == {"newer"}
        store.check()

    @pytest.mark.parametrize("pages", [1, 2, 3, 4])
    def test_one_that_was_cut_short_goes_on(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, pages: int
    ) -> None:
        """After 1 to 3 pages, and after the last, when only the answer is lost."""
        writer = store.writer()
        self.fill(writer)
        with monkeypatch.context() as patch:
            cut_after(patch, pages)
            with pytest.raises(StoreUnavailableError, match="cut"):
                delete_scope(writer, ALICE, self.KEY, why="asked")
        done = min(10 * pages, self.RECORDS)
        assert store.one("SELECT count(*) FROM memory WHERE status = 'deleted'") == done
        self.fill(writer, "newer")
        resumed = delete_scope(writer, ALICE, self.KEY, why="asked")
        assert (resumed.count, resumed.repeated) == (self.RECORDS, done)
        assert resumed.replayed is (done == self.RECORDS)
        assert store.query("SELECT DISTINCT text, status FROM memory ORDER BY 1") == [
            {"text": "newer", "status": "active"},
            {"text": "old", "status": "deleted"},
        ]
        last = store.query("SELECT shard, max(pos) AS p FROM outbox WHERE op = 'delete' GROUP BY 1")
        assert {one.shard: one.pos for one in resumed.written} == {r["shard"]: r["p"] for r in last}
        again = delete_scope(writer, ALICE, self.KEY, why="asked")
        assert (plain(again), again.replayed) == (plain(resumed), True)
        store.check()

    def test_twins_have_one_effect_while_others_add(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each began at another moment; what the first of them found is deleted for all."""
        writer = store.writer()
        self.fill(writer)
        after_each_page(monkeypatch, lambda _: add(writer, new("newer")))
        answers = at_once([lambda: delete_scope(writer, ALICE, self.KEY)] * TWINS)
        assert {plain(answer)[0] for answer in answers} == {self.RECORDS}
        assert len({repr(plain(answer)) for answer in answers}) == 1
        assert sum(a.count - a.repeated for a in answers if isinstance(a, ScopeDeleted)) == 35
        assert store.one("SELECT count(*) FROM outbox WHERE op = 'delete'") == self.RECORDS
        assert self.live(store) == {"newer"}
        store.check()

    def test_another_scope_or_command_under_any_of_its_pages_is_refused(self, store: Store) -> None:
        writer = store.writer()
        self.fill(writer)
        add(writer, new("bob's", user_id="bob"))
        delete_scope(writer, ALICE, self.KEY)
        before = store.rows()
        with pytest.raises(MutationConflictError):
            delete_scope(writer, Scope(TENANT, user_id="bob"), key("m", "delete_scope", "bob"))
        for chunk in range(4):
            with pytest.raises(MutationConflictError):
                add_chunk(writer, Chunk([(1, new())]), key("m", "bulk", "x", chunk=chunk))
        assert store.rows() == before
        store.check()


def after_each_page(monkeypatch: pytest.MonkeyPatch, then: Callable[[int], object]) -> None:
    """Have something happen after each page of a scope's deletion; `then` is given its number."""
    plainly, numbers = changes._delete_page, count(1)

    def page(writer: Writer, bounds: changes.ScopePage) -> changes.PageDeleted:
        done = plainly(writer, bounds)
        then(next(numbers))
        return done

    monkeypatch.setattr(changes, "_delete_page", page)


def cut_after(monkeypatch: pytest.MonkeyPatch, pages: int) -> None:
    def cut(number: int) -> None:
        if number == pages:
            raise StoreUnavailableError("cut")

    after_each_page(monkeypatch, cut)


def test_a_twin_waits_for_what_the_first_one_comes_to(store: Store) -> None:
    """W-01: rolled back, the first leaves the key to the second; the second never answers early."""
    writer = store.writer()
    with store.as_api() as conn:
        conn.execute(
            "INSERT INTO mutation (tenant, mutation_id, chunk, command, body_hash, memory_ids,"
            " versions) VALUES ('t1', 'm', 0, 'add', '', '{}', '{}')"
        )
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(an_add(writer)()))
        thread.start()
        until(lambda: store.one(WAITING) > 0, "the twin waits for the key")
        assert not answers
        conn.execute("ROLLBACK")
        thread.join(20)
    assert [answer.replayed for answer in answers] == [False]
    store.check()
