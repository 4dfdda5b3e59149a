"""One index on an OpenSearch server: made, opened, written, read whole, published, dropped.

Any number of processes may write: each document's version refuses what is older, and so does each
mark's. Nothing is deleted while a late write can come: the server forgets deletes.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError, RequestError, TransportError

from canonical.domain.records import Status
from canonical.errors import EngineMismatchError, EngineUnavailableError, PoisonError
from projectors.keyword import schema
from projectors.keyword.mapping import IndexWrite
from projectors.keyword.opensearch import client as clients
from projectors.keyword.opensearch import documents, queries
from projectors.keyword.opensearch.bulk import Item
from projectors.keyword.opensearch.failures import LOST, in_our_terms, kind_of, reading
from projectors.keyword.opensearch.sending import Sender
from projectors.keyword.opensearch.settings import OpenSearchSettings
from projectors.keyword.opensearch.view import OpenSearchView, Place
from projectors.keyword.port import Written
from projectors.protocol import Mark

ASKED_AT_ONCE = 1_000  # ids
SCAN_PAGE = 5_000
SCAN_LIFE = "5m"  # how long the server keeps a scan's view after its last page
MAX_PROBES = 10_000  # routing values tried until each shard has one

TAKEN = frozenset({"resource_already_exists_exception", "invalid_index_name_exception"})
ALIAS_TAKEN = frozenset({"invalid_alias_name_exception"})


class OpenSearchIndex:
    """An open index. Make it with `create` or `open`; close it, or use it as a context."""

    def __init__(
        self,
        settings: OpenSearchSettings,
        name: str,
        place: Place,
        client: OpenSearch,
        pause: Callable[[float], None],
    ) -> None:
        self._settings, self._name, self._place = settings, name, place
        self._client = client
        self._sender = Sender(client, documents.writes_alias(name), settings, pause)
        self._closed = False

    @classmethod
    def create(
        cls,
        settings: OpenSearchSettings,
        name: str,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> Self:
        """Make an empty index of a name that is free, and open it.

        Raises: EngineMismatchError, when an index or an alias has that name.
                EngineUnsupportedError, when the server is too old. EngineUnavailableError.
        """
        with ExitStack() as opened:
            client = _connected(settings, opened)
            body = documents.index_body(settings, name)
            with in_our_terms("create"):
                try:
                    client.indices.create(index=name, body=body)
                except RequestError as exc:
                    if kind_of(exc) not in TAKEN:
                        raise
                    raise EngineMismatchError(
                        f"create: an index or an alias is named {name}, or may not be so named"
                    ) from exc
            place = _described(client, settings, name)
            opened.pop_all()
        return cls(settings, name, place, client, pause)

    @classmethod
    def open(
        cls,
        settings: OpenSearchSettings,
        name: str,
        *,
        alias: str | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> Self:
        """Open an index that is there; searches ask `alias`, if it is given.

        Guarantee: never creates one: a lost index is not answered with an empty one.
        Raises:    EngineMismatchError, when there is none, or one of another schema, analysis or
                   settings that can't be changed, or the alias is none: build it again, or
                   publish it. EngineUnsupportedError. EngineUnavailableError.
        """
        with ExitStack() as opened:
            client = _connected(settings, opened)
            place = _described(client, settings, name)
            if alias is not None:
                _require_alias(client, alias)
                place = replace(place, target=alias)
            opened.pop_all()
        return cls(settings, name, place, client, pause)

    @staticmethod
    def drop(settings: OpenSearchSettings, name: str) -> None:
        """Delete an index for good, with its documents; nothing happens if it is gone already.

        Raises: EngineUnavailableError, also when the name is an alias.
        """
        with ExitStack() as opened:
            client = _connected(settings, opened)
            with in_our_terms("drop"):
                try:
                    answer = client.indices.delete(index=name, params={"expand_wildcards": "none"})
                except NotFoundError as exc:
                    if kind_of(exc) not in LOST:
                        raise
                    return
            _require_acknowledged("drop", answer)

    def close(self) -> None:
        """Give the connections up."""
        self._closed = True
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Return the index's name on the server."""
        return self._name

    def publish(self, alias: str) -> None:
        """Let those who search by `alias` find this index, and no other one, in one step.

        Raises: EngineMismatchError, when an index has the alias's name. EngineUnavailableError.
        """
        actions = [
            {"remove": {"index": "*", "alias": alias, "must_exist": False}},
            {"add": {"index": self._name, "alias": alias}},
        ]
        with in_our_terms("publish"):
            try:
                answer = self._client.indices.update_aliases(body={"actions": actions})
            except RequestError as exc:
                if kind_of(exc) not in ALIAS_TAKEN:
                    raise
                raise EngineMismatchError(
                    f"publish: {alias} is the name of an index, so it can't be an alias"
                ) from exc
        _require_acknowledged("publish", answer)

    def write(
        self,
        wanted: Mapping[UUID, int],
        write_for: Callable[[UUID], IndexWrite],
        marks: Iterable[Mark],
    ) -> Written:
        """Write what is newer than what the index holds, then the marks.

        Guarantee: on disk and seen by every later search when it returns. The marks are written
                   once each write is done, stale or refused. After an error some writes may be
                   done; to repeat them is harmless.
        Cost:      a refresh, besides the requests.
        Raises:    EngineUnavailableError, EngineMismatchError.
        """
        self._require_open()
        refused: dict[UUID, PoisonError] = {}
        outcome = self._sender.send(
            _items(wanted, write_for, refused, routed=self._settings.route_by_tenant)
        )
        kept = [documents.mark_item(mark) for mark in marks]
        self._sender.send(kept)
        if wanted or kept:
            self._refresh()
        return Written(outcome.stale, refused | outcome.refused, outcome.again)

    def guards(self, memory_ids: Sequence[UUID]) -> dict[UUID, int]:
        """Return the guard of each of these memories that the index holds, dead or alive."""
        ids, held = [memory_id.hex for memory_id in memory_ids], dict[UUID, int]()
        for start in range(0, len(ids), ASKED_AT_ONCE):
            found = self._found("guards", queries.held(ids[start : start + ASKED_AT_ONCE]))
            with reading("guards"):
                held |= {UUID(hex=one["_id"]): int(one["_version"]) for one in found}
        return held

    def marks(self) -> dict[int, Mark]:
        """Return, per shard, the last event whose page the index holds."""
        self._require_open()
        self._refresh()
        found = self._found("marks", queries.marks())
        with reading("marks"):
            kept = [documents.mark_of(one["_source"]) for one in found]
        return {mark.shard: mark for mark in kept}

    def count(self, *, live: bool = True) -> int:
        """Return how many memories the index holds: those that can be found, or tombstones too."""
        self._require_open()
        body = {"query": queries.memories(live=live)}
        with in_our_terms("count"):
            answer = self._client.count(index=self._name, body=body)
        with reading("count"):
            return int(answer["count"])

    def scan(self) -> Iterator[tuple[UUID, int, Status]]:
        """Yield (memory id, guard, status) of everything that the index holds, once each.

        Guarantee: one view, of when it began; writes go on beside it.
        Cost:      constant memory; a request per `SCAN_PAGE` memories. The server keeps the view's
                   files until the iterator is exhausted or closed.
        """
        self._require_open()
        with in_our_terms("scan"):
            answer = self._client.create_pit(index=self._name, params={"keep_alive": SCAN_LIFE})
        with reading("scan"):
            view = str(answer["pit_id"])
        try:
            yield from self._scanned(view)
        finally:
            with suppress(TransportError):  # the server ends it by itself after `SCAN_LIFE`
                self._client.delete_pit(body={"pit_id": [view]})

    def view(self, tenant: str, *, timeout: timedelta) -> OpenSearchView:
        """Return what a search of this tenant reads: what was there at the last refresh.

        Raises: EngineUnavailableError, when the index was closed.
        """
        self._require_open()
        routing = documents.routing(tenant) if self._settings.route_by_tenant else None
        return OpenSearchView(self._client, self._place, tenant, routing, timeout.total_seconds())

    def _refresh(self) -> None:
        """Let searches see what was written.

        A record leaves the tail of a search when its watermark passes. If the page were not seen
        by then, the record would be found nowhere for a while.
        """
        with in_our_terms("refresh"):
            answer = self._client.indices.refresh(index=self._name)
        with reading("refresh"):
            if answer["_shards"]["failed"]:
                raise EngineUnavailableError("refresh: some shards of the index did not answer")

    def _found(self, operation: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        self._require_open()
        params = {"allow_partial_search_results": "false"}
        with in_our_terms(operation):
            answer = self._client.search(index=self._name, body=body, params=params)
        with reading(operation):
            return list(answer["hits"]["hits"])

    def _scanned(self, view: str) -> Iterator[tuple[UUID, int, Status]]:
        body = queries.page_of_scan(view, keep_alive=SCAN_LIFE, size=SCAN_PAGE)
        params = {"allow_partial_search_results": "false"}
        while True:
            with in_our_terms("scan"):
                answer = self._client.search(body=body, params=params)
            with reading("scan"):
                page = answer["hits"]["hits"]
                found = [_scanned(one) for one in page]
            yield from found
            if len(found) < SCAN_PAGE:
                return
            body["search_after"] = page[-1]["sort"]

    def _require_open(self) -> None:
        if self._closed:
            raise EngineUnavailableError(f"the index {self._name} is closed")


def _items(
    wanted: Iterable[UUID],
    write_for: Callable[[UUID], IndexWrite],
    refused: dict[UUID, PoisonError],
    *,
    routed: bool,
) -> Iterator[Item]:
    """Make each write an item; of those that can't be made, keep why."""
    for memory_id in wanted:
        try:
            yield documents.item_of(write_for(memory_id), routed=routed)
        except PoisonError as exc:
            refused[memory_id] = exc


def _connected(settings: OpenSearchSettings, opened: ExitStack) -> OpenSearch:
    client = clients.connect(settings)
    opened.callback(client.close)
    clients.require_server(client, timeout_s=settings.timeout.total_seconds())
    return client


def _described(client: OpenSearch, settings: OpenSearchSettings, name: str) -> Place:
    """Check that an index is what this program writes, and return how it is searched."""
    with in_our_terms("open"):
        answer = client.indices.get(index=name)
    with reading("open"):
        if name not in answer:
            raise EngineMismatchError(f"open: {name} is an alias and no index")
        index = answer[name]
        mappings, about = index["mappings"], index["settings"]["index"]
        made = mappings.get("_meta", {}).get("fingerprint")
        strict = mappings.get("dynamic") == "strict"
        durable = about.get("translog", {}).get("durability", "request") == "request"
        writable = documents.writes_alias(name) in index["aliases"]
        shards = int(about["number_of_shards"])
    if made != settings.fingerprint():
        raise EngineMismatchError(
            f"open: {name} was made by another schema or analysis, or with another routing, k1 or b"
        )
    if not (strict and durable and writable):
        raise EngineMismatchError(
            f"open: {name} was changed by hand: its mapping is strict: {strict}, its translog is"
            f" durable at each request: {durable}, its alias for writes is there: {writable}"
        )
    return Place(name, _probes(client, name, shards), settings.k1, settings.b)


def _probes(client: OpenSearch, name: str, shards: int) -> tuple[str, ...]:
    """Find a routing value for each shard; the server alone knows where one leads."""
    found: dict[int, str] = {}
    for number in range(MAX_PROBES if shards > 1 else 0):
        with in_our_terms("open"):
            answer = client.search_shards(index=name, params={"routing": str(number)})
        with reading("open"):
            found.setdefault(answer["shards"][0][0]["shard"], str(number))
        if len(found) == shards:
            break
    return tuple(found.values()) or ("0",)


def _require_acknowledged(operation: str, answer: Any) -> None:
    with reading(operation):
        if not answer["acknowledged"]:
            raise EngineUnavailableError(f"{operation}: not all of the cluster has heard of it yet")


def _require_alias(client: OpenSearch, alias: str) -> None:
    with in_our_terms("open"):
        try:
            answer = client.indices.get_alias(name=alias)
        except NotFoundError as exc:
            if not isinstance(exc.info, dict):  # a proxy's, say
                raise
            raise EngineMismatchError(
                f"open: there is no alias {alias} (an index of that name is none)"
            ) from exc
    if len(answer) != 1:
        raise EngineMismatchError(f"open: {alias} names {len(answer)} indexes, and may name one")


def _scanned(found: Mapping[str, Any]) -> tuple[UUID, int, Status]:
    (status,) = found["fields"][schema.STATUS]
    return UUID(hex=found["_id"]), found["_version"], Status(status)
