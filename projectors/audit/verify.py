"""Proves a generation's chains: link by link, against the signed heads, against the versions."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlalchemy import Connection, RowMapping

from projectors.audit.mapping import Entry, head_bytes, next_hash
from projectors.audit.schema import BEGINNING, named
from projectors.audit.signing import Signer

PROBLEMS_SHOWN = 20
FETCH = 5_000


@dataclass(frozen=True, slots=True)
class Problem:
    """A place where the audit doesn't hold."""

    shard: int
    pos: int
    problem: str


@dataclass(slots=True)
class Report:
    """What a verification saw. `problems`: the first of each kind and shard, 20 at the most."""

    generation: int
    entries: int = 0
    heads: int = 0  # signatures that were checked
    unchecked_heads: int = 0  # signed with a key that is not here
    newest: dict[int, tuple[int, str]] = field(default_factory=dict)  # shard → position, hash
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Tell whether everything held."""
        return not self.problems


def verify(conn: Connection, generation: int, signer: Signer | None) -> Report:
    """Walk every chain of a generation and compare it with heads and versions.

    Guarantee: names a changed, removed, swapped or added entry; without the key, one who can write
               to the database can't cut a chain behind a signed head or make it anew.
    Cost:      reads the audit and the versions once, in constant memory. `conn` serves as owner.
    """
    report = Report(generation)
    wanted = _signed(conn, report, signer)
    for entry, row in _entries(conn, generation):
        _check_link(report, entry, row)
        expected = wanted.pop((entry.shard, entry.pos), None)
        if expected is not None and expected != bytes(row["hash"]):
            _note(report, entry.shard, entry.pos, "the hash is not the one that was signed")
    for shard, pos in wanted:
        _note(report, shard, pos, "a signed entry is gone")
    parameters = {"generation": generation, "limit": PROBLEMS_SHOWN}
    for row in conn.execute(named("unlike_versions"), parameters):
        _note(report, row.shard, row.pos, row.problem)
    return report


def _check_link(report: Report, entry: Entry, row: RowMapping) -> None:
    held = report.newest.get(entry.shard)
    before = BEGINNING if held is None else bytes.fromhex(held[1])
    if bytes(row["previous"]) != before:
        _note(report, entry.shard, entry.pos, "the entry doesn't follow the one before it")
    if bytes(row["hash"]) != next_hash(bytes(row["previous"]), entry):
        _note(report, entry.shard, entry.pos, "the entry is not what was hashed")
    report.entries += 1
    report.newest[entry.shard] = (entry.pos, bytes(row["hash"]).hex())


def _signed(
    conn: Connection, report: Report, signer: Signer | None
) -> dict[tuple[int, int], bytes]:
    wanted = {}
    for row in conn.execute(named("signed_heads"), {"generation": report.generation}):
        message = head_bytes(report.generation, row.shard, row.pos, bytes(row.hash))
        if signer is None or row.key_id != signer.key_id:
            report.unchecked_heads += 1
        elif not signer.verifies(message, bytes(row.signature)):
            _note(report, row.shard, row.pos, "a head's signature is wrong")
        else:
            report.heads += 1
        wanted[row.shard, row.pos] = bytes(row.hash)
    return wanted


def _entries(conn: Connection, generation: int) -> Iterator[tuple[Entry, RowMapping]]:
    streamed = conn.execution_options(yield_per=FETCH)
    for row in streamed.execute(named("chain"), {"generation": generation}).mappings():
        fields = {name: row[name] for name in Entry.__dataclass_fields__}
        yield Entry(**{**fields, "text_mac": bytes(row["text_mac"])}), row


def _note(report: Report, shard: int, pos: int, problem: str) -> None:
    if len(report.problems) < PROBLEMS_SHOWN:
        report.problems.append(Problem(shard, pos, problem))
