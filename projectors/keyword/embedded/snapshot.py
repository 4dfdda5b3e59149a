"""What one commit of a tantivy index holds: guards, counts, everything in a stable order."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

import tantivy
from tantivy import DocAddress, Query, Searcher

from canonical.domain.records import Status
from canonical.errors import EngineMismatchError
from projectors.keyword import schema
from projectors.keyword.embedded.documents import (
    ABOUT,
    ABOUT_ID,
    ABOUT_TERM,
    ID_HIGH,
    ID_LOW,
    LOW_HALF,
    STATUS_CODES,
    STATUSES,
    marks_in,
)
from projectors.protocol import Mark

SCAN_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A view that stays, whatever follows. `n_docs`, `avg_len`: as tantivy's BM25 has them."""

    searcher: Searcher
    fields: tantivy.Schema
    n_docs: float
    avg_len: float

    @classmethod
    def of(cls, index: tantivy.Index) -> Self:
        """Take the last commit.

        Raises: EngineMismatchError, when the index was never finished.
        """
        index.reload()
        searcher = index.searcher()
        return cls(searcher, index.schema, *_collection(searcher, index.schema))

    def marks(self) -> dict[int, Mark]:
        """Return, per shard, the last event whose page the commit holds.

        Raises: EngineMismatchError, when another schema or analysis made the index.
        """
        query = Query.term_query(self.fields, schema.MEMORY_ID, ABOUT_ID, "basic")
        ((_, place),) = self.searcher.search(query, 1).hits
        stored = self.searcher.doc(place).get_first(ABOUT)
        return marks_in(bytes(stored or b""))

    def guards(self, memory_ids: Sequence[UUID]) -> dict[UUID, int]:
        """Return the guard of each of these memories that is held, dead or alive."""
        if not memory_ids:
            return {}
        wanted = Query.term_set_query(
            self.fields, schema.MEMORY_ID, [memory_id.hex for memory_id in memory_ids]
        )
        hits = self.searcher.search(wanted, len(memory_ids), count=False).hits
        return {memory_id: held for memory_id, held, _ in self._described(hits)}

    def count(self, *, live: bool) -> int:
        """Return how many memories are held: those that can be found, or tombstones too."""
        if not live:
            return self.searcher.num_docs - 1  # the document `about`
        wanted = [code for status, code in STATUS_CODES.items() if status.is_live]
        found = Query.term_set_query(self.fields, schema.STATUS, wanted)
        return int(self.searcher.search(found, 1).count)  # type: ignore[attr-defined]  # not in the stub

    def scan_page(self, after: int) -> list[tuple[UUID, int, Status]]:
        """Return the next memories in the order of `place_of`; empty behind the last one.

        Shapes: some 10,000, more if they share a place: those always come together.
        """
        limit, start = SCAN_PAGE, max(after, 0)
        beyond = Query.range_query(
            self.fields, ID_LOW, tantivy.FieldType.Unsigned, start, None, after < 0
        )
        while True:
            found = self.searcher.search(
                beyond, limit, count=False, order_by_field=ID_LOW, order=tantivy.Order.Asc
            )
            if len(found.hits) < limit:
                return self._described(found.hits)
            # The last place may go on behind the page: it is left for the next one.
            whole = [hit for hit in found.hits if hit[0] != found.hits[-1][0]]
            if whole:
                return self._described(whole)
            limit *= 2

    def _described(self, hits: Sequence[tuple[Any, DocAddress]]) -> list[tuple[UUID, int, Status]]:
        if not hits:
            return []
        places = [address for _, address in hits]
        columns = (
            self.searcher.fast_field_values(name, places)
            for name in (ID_HIGH, ID_LOW, schema.GUARD, schema.STATUS)
        )
        return [
            (
                UUID(int=int(high or 0) << 64 | int(low or 0)),
                int(held or 0),
                STATUSES[int(code or 0)],
            )
            for high, low, held, code in zip(*columns, strict=True)
        ]


def place_of(memory_id: UUID) -> int:
    """Return where a scan meets a memory: the half of its id that is random in every id we make."""
    return memory_id.int & LOW_HALF


def _collection(searcher: Searcher, fields: tantivy.Schema) -> tuple[float, float]:
    """Ask for the collection's size and average length as tantivy's BM25 counts them.

    They include what is deleted and not yet merged away, and only `explain` tells them.
    """
    probe = Query.term_query(fields, schema.BODY, ABOUT_TERM, "freq")
    hits = searcher.search(probe, 1, count=False).hits
    if not hits:
        raise EngineMismatchError("the index was never finished")
    told = dict(_figures(json.loads(probe.explain(searcher, hits[0][1]).to_json())))
    return told["N, total number of docs"], told["avgdl, average length of field"]


def _figures(explanation: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    yield explanation["description"], explanation["value"]
    for part in explanation.get("details", ()):
        yield from _figures(part)
