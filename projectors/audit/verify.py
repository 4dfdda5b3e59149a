"""Proves a generation's chains: link by link, against signed heads, versions and texts."""

import heapq
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, text

from canonical.store.rows import content_mac
from projectors.audit.mapping import Entry, head_bytes, next_hash
from projectors.audit.schema import BEGINNING, named
from projectors.audit.signing import Signer

PROBLEMS_SHOWN = 20
FETCH = 5_000
FIELDS = len(Entry._fields)

Place = tuple[int, int]  # shard, position


@dataclass(frozen=True, slots=True)
class Problem:
    """A place where the audit doesn't hold."""

    shard: int
    pos: int
    problem: str


class Head(NamedTuple):
    """The hash that a chain had at a place, as it was signed or exported."""

    shard: int
    pos: int
    hash: str  # hexadecimal
    generation: int | None = None  # None: exported


@dataclass(slots=True)
class Report:
    """What a verification saw. `problems`: 20 at the most, in the order in which they were met."""

    generation: int
    entries: int = 0
    heads: int = 0  # signatures that were checked
    unchecked_heads: int = 0  # signed with a key that is not here
    contents: int = 0  # that are the ones which were written
    exported_heads: int = 0  # that were compared
    newest: dict[int, tuple[int, str]] = field(default_factory=dict)  # shard → position, hash
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Tell whether everything held."""
        return not self.problems


def verify(
    conn: Connection, generation: int, signer: Signer | None, *, exported: Iterable[Head] = ()
) -> Report:
    """Walk every chain of a generation and compare it with heads, versions and texts.

    Guarantee: names a changed, removed, swapped or added entry, and a text, metadata, validity or
               expiry, of a version or of the record itself, that is not what was written. Without
               the key, one who can write to the database can't cut a chain behind a signed head or
               make it anew. What the whole database's owner can do is seen by heads that were
               `exported` before.
    Cost:      reads audit, versions and texts once, in constant memory. `conn` serves as owner; it
               may run beside the writers.
    """
    conn.execute(text("SET LOCAL statement_timeout = 0"))
    report = Report(generation)
    _walk(report, _signed(conn, report, signer), _stream(conn, "chain", generation), exported)
    parameters = {"generation": generation, "limit": PROBLEMS_SHOWN}
    for row in conn.execute(named("unlike_versions"), parameters):
        _note(report, (row.shard, row.pos), row.problem)
    _check_contents(conn, report)
    return report


def _walk(
    report: Report,
    signed: Iterator[Head],
    entries: Iterator[Row[*tuple[Any, ...]]],
    exported: Iterable[Head],
) -> None:
    others = sorted(exported, key=_place)
    report.exported_heads = len(others)
    heads = heapq.merge(signed, others, key=_place)
    # Heads are read first, so that each of them has its entry in the later snapshot.
    head = next(heads, None)
    for row in entries:
        entry, previous, digest = Entry(*row[:FIELDS]), bytes(row[-2]), bytes(row[-1])
        _check_link(report, entry, previous, digest)
        while head is not None and _place(head) <= (entry.shard, entry.pos):
            _check_head(report, head, entry, digest)
            head = next(heads, None)
    while head is not None:
        _check_head(report, head, None, b"")
        head = next(heads, None)


def _check_link(report: Report, entry: Entry, previous: bytes, digest: bytes) -> None:
    held = report.newest.get(entry.shard)
    place = entry.shard, entry.pos
    if previous != (BEGINNING if held is None else bytes.fromhex(held[1])):
        _note(report, place, "the entry doesn't follow the one before it")
    if digest != next_hash(previous, entry):
        _note(report, place, "the entry is not what was hashed")
    report.entries += 1
    report.newest[entry.shard] = (entry.pos, digest.hex())


def _check_head(report: Report, head: Head, entry: Entry | None, digest: bytes) -> None:
    """Compare a head with the entry at its place, or the first one behind it."""
    kind = "signed" if head.generation is not None else "exported"
    if entry is not None and (entry.shard, entry.pos) == _place(head):
        if digest.hex() != head.hash:
            _note(report, _place(head), f"the hash is not the one that was {kind}")
        return
    passed = entry is not None and entry.shard == head.shard
    if passed or head.generation in (None, report.generation):
        _note(report, _place(head), f"the entry that was {kind} is gone")
    # Else a head of an older generation lies beyond what this one has come to.


def _place(head: Head) -> Place:
    return head.shard, head.pos


def _signed(conn: Connection, report: Report, signer: Signer | None) -> Iterator[Head]:
    for row in _stream(conn, "signed_heads", report.generation):
        message = head_bytes(row.generation, row.shard, row.pos, bytes(row.hash))
        if signer is None or row.key_id != signer.key_id:
            report.unchecked_heads += 1
        elif not signer.verifies(message, bytes(row.signature)):
            _note(report, (row.shard, row.pos), "a head's signature is wrong")
        else:
            report.heads += 1
        yield Head(row.shard, row.pos, bytes(row.hash).hex(), row.generation)


def _check_contents(conn: Connection, report: Report) -> None:
    for row in _stream(conn, "contents", report.generation):
        place = row.shard, row.pos
        if row.salt is None:
            _note(report, place, "the salt that proves the content is gone, without an erase")
        elif not hmac.compare_digest(content_mac(row, row.salt.bytes), bytes(row.text_mac)):
            _note(report, place, "a version's content is not what was written")
        elif row.shown is False:
            _note(report, place, "the record's content is not that of its newest version")
        else:
            report.contents += 1


def _stream(conn: Connection, name: str, generation: int) -> Iterator[Row[*tuple[Any, ...]]]:
    """Read a statement's rows in portions, each of which has the time that it needs."""
    streamed = conn.execution_options(yield_per=FETCH)
    yield from streamed.execute(named(name), {"generation": generation})


def _note(report: Report, place: Place, problem: str) -> None:
    if len(report.problems) < PROBLEMS_SHOWN:
        report.problems.append(Problem(*place, problem))
