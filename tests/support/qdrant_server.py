"""A stand-in for a Qdrant server: Qdrant Edge, the server's own engine, behind Qdrant's HTTP API.

Usage: qdrant_server.py DIRECTORY PORT [--version V] [--key KEY] [--tls CERTIFICATE PRIVATE_KEY]

It knows the calls that Gnomon's adapter makes and refuses everything else. What it answers holds
to what was seen of Qdrant 1.19: a conditional upsert that changed nothing answers `completed`; a
new id is inserted whatever the condition says; a collection whose server was killed comes back
`grey`, takes reads and writes, and stays so until its optimiser's settings are touched. What was
acknowledged survives its being killed. There is no cluster, no approximate search and no gRPC.
"""

import argparse
import json
import re
import signal
import ssl
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import RLock, Thread
from types import FrameType
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID

from qdrant_edge import (
    CountRequest,
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeVectorParams,
    Query,
    QueryRequest,
    ScrollRequest,
    SearchParams,
    UpdateOperation,
)
from typing_extensions import override

from tests.support.qdrant_wire import (
    RefusedError,
    bad,
    fields,
    filter_of,
    index_of,
    of_type,
    payload_of,
    point,
    point_id,
    vector,
)

VERSION: Final = "1.19.0"
MAX_BODY: Final = 32 << 20  # as the server comes
RUNNING: Final = "running"  # a file that a clean end removes
QUANTISED: Final = {"scalar": {"type": "int8", "quantile": 0.99, "always_ram": True}}


def write_whole(path: Path, content: Any) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content))
    fresh.rename(path)


class Collection:
    """One collection in a directory of its own."""

    def __init__(self, directory: Path, *, killed: bool = False) -> None:
        self._directory = directory
        self.config: dict[str, Any] = json.loads((directory / "config.json").read_text())
        self._size: int = self.config["vectors"]["size"]
        self.shard = EdgeShard.load(str(directory / "edge"))
        self._operations = 0
        self._grey = killed and self.shard.count(CountRequest(exact=True)) > 0

    @classmethod
    def create(cls, directory: Path, told: dict[str, Any]) -> "Collection":
        vectors = fields(told["vectors"], "vectors", needs="size distance", may="on_disk")
        if vectors["distance"] != "Dot":
            raise bad("the stand-in knows the distance Dot only")
        if (quantised := told.get("quantization_config")) not in (None, QUANTISED):
            raise bad(f"the stand-in doesn't know the quantisation {quantised!r}")
        strict = told.get("strict_mode_config", {})
        fields(strict, "strict_mode_config", may="enabled upsert_max_batchsize")
        (directory / "edge").mkdir(parents=True)
        params = EdgeVectorParams(size=vectors["size"], distance=Distance.Dot)
        EdgeShard.create(str(directory / "edge"), EdgeConfig(vectors=params)).close()
        write_whole(directory / "config.json", {**told, "payload_schema": {}})
        return cls(directory)

    def info(self) -> dict[str, Any]:
        told = self.config
        count = self.shard.count(CountRequest(exact=True))
        return {
            "status": "grey" if self._grey else "green",
            "optimizer_status": "ok",
            "points_count": count,
            "indexed_vectors_count": 0,
            "segments_count": 1,
            "config": {
                "params": {
                    "vectors": told["vectors"],
                    "shard_number": told.get("shard_number", 1),
                    "replication_factor": told.get("replication_factor", 1),
                    "write_consistency_factor": told.get("write_consistency_factor", 1),
                    "on_disk_payload": told.get("on_disk_payload", True),
                },
                "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000},
                "optimizer_config": {
                    "deleted_threshold": 0.2,
                    "vacuum_min_vector_number": 1_000,
                    "default_segment_number": 0,
                    "flush_interval_sec": 5,
                },
                "metadata": told.get("metadata"),
                "strict_mode_config": told.get("strict_mode_config"),
            },
            "payload_schema": told["payload_schema"],
        }

    def change(self, body: dict[str, Any]) -> bool:
        told = fields(body, "collection", may="optimizers_config metadata")
        if "optimizers_config" in told:
            fields(told["optimizers_config"], "optimizers_config")
            self._grey = False
        if "metadata" in told:
            merged = {**(self.config.get("metadata") or {}), **told["metadata"]}
            self._save({"metadata": merged})
        return True

    def index(self, body: dict[str, Any]) -> dict[str, Any]:
        name, shown, operation = index_of(body)
        self.shard.update(operation)
        self._save({"payload_schema": {**self.config["payload_schema"], name: shown}})
        return self._done()

    def upsert(self, body: dict[str, Any]) -> dict[str, Any]:
        told = fields(body, "upsert", needs="points", may="update_filter")
        strict = self.config.get("strict_mode_config") or {}
        at_most = strict.get("upsert_max_batchsize")
        if strict.get("enabled") and at_most and len(told["points"]) > at_most:
            raise RefusedError(
                400, f"Bad request: Limit exceeded {len(told['points'])} > {at_most}"
            )
        points = [point(found, self._size) for found in of_type(told["points"], list, "points")]
        where = filter_of(told["update_filter"]) if "update_filter" in told else None
        self.shard.update(UpdateOperation.upsert_points(points, where))
        return self._done()

    def retrieve(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        told = fields(body, "retrieve", needs="ids with_payload", may="with_vector")
        ids: list[Any] = [point_id(i) for i in of_type(told["ids"], list, "ids")]
        wanted = payload_of(told["with_payload"])
        found = self.shard.retrieve(ids, wanted, told.get("with_vector", False))
        return [shown(record) for record in found]

    def query(self, body: dict[str, Any]) -> dict[str, Any]:
        told = fields(
            body, "query", needs="query limit", may="filter params with_payload with_vector"
        )
        near = vector(fields(told["query"], "query", needs="nearest")["nearest"], self._size)
        params = fields(told.get("params", {}), "params", may="exact quantization")
        fields(params.get("quantization", {}), "quantization", may="rescore")
        request = QueryRequest(
            limit=of_type(told["limit"], int, "limit"),
            query=Query.Nearest(near),
            filter=filter_of(told["filter"]) if "filter" in told else None,
            with_payload=payload_of(told.get("with_payload", False)),
            with_vector=told.get("with_vector", False),
            params=SearchParams(exact=True),
        )
        hits = self.shard.query(request)
        return {"points": [shown(hit) | {"version": 0, "score": hit.score} for hit in hits]}

    def scroll(self, body: dict[str, Any]) -> dict[str, Any]:
        told = fields(body, "scroll", needs="limit with_payload", may="offset with_vector")
        request = ScrollRequest(
            limit=of_type(told["limit"], int, "limit"),
            offset=point_id(told["offset"]) if "offset" in told else None,
            with_payload=payload_of(told["with_payload"]),
            with_vector=told.get("with_vector", False),
        )
        found, after = self.shard.scroll(request)
        onward = str(after) if isinstance(after, UUID) else after
        return {"points": [shown(record) for record in found], "next_page_offset": onward}

    def count(self, body: dict[str, Any]) -> dict[str, Any]:
        told = fields(body, "count", needs="exact", may="filter")
        where = filter_of(told["filter"]) if "filter" in told else None
        return {"count": self.shard.count(CountRequest(exact=True, filter=where))}

    def close(self) -> None:
        self.shard.flush()
        self.shard.close()

    def _done(self) -> dict[str, Any]:
        self._operations += 1
        return {"operation_id": self._operations, "status": "completed"}

    def _save(self, changes: dict[str, Any]) -> None:
        self.config |= changes
        write_whole(self._directory / "config.json", self.config)


def shown(found: Any) -> dict[str, Any]:
    made = {"id": str(found.id) if isinstance(found.id, UUID) else found.id}
    if found.payload is not None:
        made["payload"] = found.payload
    return made


class Store:
    """All collections, their aliases, and what can be asked of them."""

    def __init__(self, directory: Path, version: str) -> None:
        self._directory, self.version = directory, version
        self._lock = RLock()
        (directory / "collections").mkdir(parents=True, exist_ok=True)
        running = directory / RUNNING
        killed = running.exists()
        running.touch()
        self._aliases_file = directory / "aliases.json"
        self.aliases: dict[str, str] = {}
        if self._aliases_file.exists():
            self.aliases = json.loads(self._aliases_file.read_text())
        self.collections = {
            path.name: Collection(path, killed=killed)
            for path in (directory / "collections").iterdir()
            if (path / "config.json").exists()
        }

    def close(self) -> None:
        with self._lock:
            for collection in self.collections.values():
                collection.close()
        (self._directory / RUNNING).unlink()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        for pattern, parameters, serve in ROUTES:
            verb, _, place = pattern.partition(" ")
            found = re.fullmatch(place, path)
            if verb == method and found:
                if unknown := query.keys() - set(parameters.split()):
                    raise bad(f"the stand-in doesn't know the parameters {sorted(unknown)}")
                if query.get("wait", "true") != "true":
                    raise bad("the adapter always waits")
                with self._lock:
                    return serve(self, [unquote(part) for part in found.groups()], body)
        raise RefusedError(404, f"the stand-in doesn't know {method} {path}")

    def named(self, name: str) -> Collection:
        found = self.collections.get(self.aliases.get(name, name))
        if found is None:
            raise RefusedError(404, f"Not found: Collection `{name}` doesn't exist!")
        return found

    def create(self, name: str, body: Any) -> bool:
        fields(
            body,
            "collection",
            needs="vectors",
            may="shard_number replication_factor write_consistency_factor on_disk_payload"
            " quantization_config strict_mode_config metadata",
        )
        if name in self.collections or name in self.aliases:
            raise RefusedError(409, f"Wrong input: Collection `{name}` already exists!")
        made = Collection.create(self._directory / "collections" / name, body)
        self.collections[name] = made
        return True

    def drop(self, name: str) -> bool:
        if (found := self.collections.pop(name, None)) is None:
            return False
        found.close()
        place = self._directory / "collections" / name
        place.rename(self._directory / f"dropped-{name}-{len(list(self._directory.iterdir()))}")
        self._rename({alias: to for alias, to in self.aliases.items() if to != name})
        return True

    def realias(self, body: Any) -> bool:
        changed = dict(self.aliases)
        for action in fields(body, "aliases", needs="actions")["actions"]:
            fields(action, "action", may="delete_alias create_alias")
            if "delete_alias" in action:
                old = fields(action["delete_alias"], "delete_alias", needs="alias_name")
                if changed.pop(old["alias_name"], None) is None:
                    raise RefusedError(404, f"Not found: Alias {old['alias_name']} does not exist!")
            if "create_alias" in action:
                new = fields(
                    action["create_alias"], "create_alias", needs="alias_name collection_name"
                )
                if new["alias_name"] in changed or new["alias_name"] in self.collections:
                    raise RefusedError(409, f"Wrong input: {new['alias_name']} already exists!")
                if new["collection_name"] not in self.collections:
                    self.named(new["collection_name"])
                changed[new["alias_name"]] = new["collection_name"]
        self._rename(changed)
        return True

    def _rename(self, aliases: dict[str, str]) -> None:
        write_whole(self._aliases_file, aliases)
        self.aliases = aliases

    def list_aliases(self) -> dict[str, Any]:
        pairs = self.aliases.items()
        return {"aliases": [{"alias_name": a, "collection_name": c} for a, c in pairs]}


Serve = Callable[[Store, list[str], Any], Any]
AT = "/collections/([^/]+)"
ROUTES: Final[list[tuple[str, str, Serve]]] = [
    (f"GET {AT}", "", lambda s, n, _: s.named(n[0]).info()),
    (
        f"GET {AT}/exists",
        "",
        lambda s, n, _: {"exists": s.aliases.get(n[0], n[0]) in s.collections},
    ),
    (f"PUT {AT}", "timeout", lambda s, n, body: s.create(n[0], body)),
    (f"PATCH {AT}", "timeout", lambda s, n, body: s.named(n[0]).change(body)),
    (f"DELETE {AT}", "timeout", lambda s, n, _: s.drop(n[0])),
    (f"PUT {AT}/index", "wait", lambda s, n, body: s.named(n[0]).index(body)),
    (f"PUT {AT}/points", "wait timeout", lambda s, n, body: s.named(n[0]).upsert(body)),
    (f"POST {AT}/points", "consistency timeout", lambda s, n, body: s.named(n[0]).retrieve(body)),
    (f"POST {AT}/points/query", "timeout", lambda s, n, body: s.named(n[0]).query(body)),
    (f"POST {AT}/points/scroll", "timeout", lambda s, n, body: s.named(n[0]).scroll(body)),
    (f"POST {AT}/points/count", "timeout", lambda s, n, body: s.named(n[0]).count(body)),
    ("POST /collections/aliases", "timeout", lambda s, _, body: s.realias(body)),
    ("GET /aliases", "", lambda s, _, __: s.list_aliases()),
]


class Handler(BaseHTTPRequestHandler):
    """One client connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @override
    def parse_request(self) -> bool:
        for method in ("GET", "PUT", "POST", "PATCH", "DELETE"):
            setattr(self, f"do_{method}", self._serve)
        return super().parse_request()

    def _serve(self) -> None:
        server = self.server
        assert isinstance(server, Listener)
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        if server.key is not None and self.headers.get("api-key") != server.key:
            self._send(401, b"Must provide an API key or an Authorization bearer token")
            return
        if length > MAX_BODY:
            self._send(413, b"JSON payload is larger than allowed")
            return
        try:
            status, told = 200, self._answer(server.store, content)
        except RefusedError as exc:
            status, told = exc.status, {"status": {"error": exc.said}, "time": 0.0}
        self._send(status, json.dumps(told).encode())

    def _answer(self, store: Store, content: bytes) -> Any:
        found = urlsplit(self.path)
        if found.path == "/" and self.command == "GET":
            return {"title": "qdrant - vector search engine", "version": store.version}
        try:
            body = json.loads(content) if content else None
        except ValueError as exc:
            raise RefusedError(400, f"Format error in JSON body: {exc}") from exc
        result = store.answer(self.command, found.path, dict(parse_qsl(found.query)), body)
        return {"result": result, "status": "ok", "time": 0.0}

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


class Listener(ThreadingHTTPServer):
    """The server's socket."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, store: Store, port: int, key: str | None) -> None:
        self.store, self.key = store, key
        super().__init__(("127.0.0.1", port), Handler)

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that hung up
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--version", default=VERSION)
    parser.add_argument("--key")
    parser.add_argument("--tls", nargs=2)
    asked = parser.parse_args()
    store = Store(asked.directory, asked.version)
    listener = Listener(store, asked.port, asked.key)
    if asked.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*asked.tls)
        listener.socket = context.wrap_socket(listener.socket, server_side=True)

    def end(_number: int, _frame: FrameType | None) -> None:
        Thread(target=listener.shutdown).start()

    signal.signal(signal.SIGTERM, end)
    sys.stdout.write(f"{listener.server_port}\n")
    sys.stdout.flush()
    listener.serve_forever(0.02)
    store.close()


if __name__ == "__main__":
    main()
