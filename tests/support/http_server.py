"""The HTTP API on a loopback port of its own, as `gnomon up` serves it, over a test's database."""

import json
import secrets
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn
from uuid import UUID

import httpx
import uvicorn
from starlette.types import ASGIApp

from canonical.domain.clock import SystemClock
from canonical.domain.records import Trust
from canonical.errors import EngineUnavailableError
from canonical.store import api_keys
from canonical.store.api_keys import Right
from canonical.store.database import Database, Role
from canonical.store.reading import CanonicalReader
from gnomon.api.app import create_app
from gnomon.api.services import Services
from gnomon.api.wire import Wire
from inference.fakes import HashEmbedder
from search.ports import Engines, always
from search.searcher import Searcher
from tests.support.postgres import Server

START_S = 20
ALL = frozenset({Right.ADMIN})
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}


class Serving(uvicorn.Server):
    """Tells when it listens."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Wire,
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                timeout_graceful_shutdown=2,
            )
        )
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # type: ignore[explicit-override]
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Serve an application on a thread; gives its address."""
    server = Serving(app)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        assert server.ready.wait(START_S), "the server doesn't start"
        host, port = listener.getsockname()
        try:
            yield f"http://{host}:{port}"
        finally:
            server.should_exit = True
            thread.join(START_S)
            assert not thread.is_alive(), "the server doesn't stop"


class DownEngine:
    """An engine that isn't there: whatever is asked of it fails as unavailable."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def refuse(*_: object, **__: object) -> NoReturn:
            raise EngineUnavailableError(f"{name}: no engine in this test")

        return refuse


@dataclass
class Noted:
    """What the API told others."""

    hints: int = 0
    used: list[tuple[str, UUID, tuple[UUID, ...], tuple[UUID, ...]]] = field(default_factory=list)

    def hint(self, _shards: Collection[int]) -> None:
        self.hints += 1


class Usage:
    def __init__(self, noted: Noted, reader: CanonicalReader) -> None:
        self._noted, self._reader = noted, reader

    def used(
        self, tenant: str, query_id: UUID, *, packed: Sequence[UUID], used: Sequence[UUID]
    ) -> None:
        self._noted.used.append((tenant, query_id, tuple(packed), tuple(used)))
        self._reader.mark_used(tenant, query_id, packed, used)


class Api:
    """A served API over a real database. Every engine is down, so a search reads the tail."""

    def __init__(self, database_url: str, **changes: Any) -> None:
        self.stack = ExitStack()
        self.url = database_url
        self.noted = Noted()
        api, projector, self.owner = (
            self.opened(role, connections=n)
            for role, n in ((Role.API, 20), (Role.PROJECTOR, 4), (Role.OWNER, 2))
        )
        reader = CanonicalReader(api)
        down: Any = always(DownEngine())
        engines = Engines(
            canonical=reader, vector=down, keyword=down, entity=down, embedder=HashEmbedder()
        )
        searcher = Searcher(engines)
        self.stack.callback(searcher.close)
        self.services = replace(
            Services(
                database=api,
                projector=projector,
                canonical=reader,
                searcher=searcher,
                usage=Usage(self.noted, reader),
                epoch=reader.epoch(),
                clock=SystemClock(),
                keys_exist=lambda: bool(api_keys.listed(self.owner)),
                hint=self.noted.hint,
            ),
            **changes,
        )

    def opened(self, role: Role, *, connections: int) -> Database:
        database = Database(self.url, role, connections=connections)
        self.stack.callback(database.close)
        return database

    def start(self) -> "Api":
        """Serve it."""
        self.address = self.stack.enter_context(serving(create_app(self.services, version="test")))
        self.host, port = self.address.removeprefix("http://").split(":")
        self.port = int(port)
        return self

    def key(
        self, tenant: str = "t1", rights: frozenset[Right] = ALL, trust: Trust = Trust.USER
    ) -> str:
        """Make an API key."""
        return api_keys.create(self.owner, tenant, f"key of {tenant}", rights, trust)[1]

    def client(self, key: str | None = None) -> "Client":
        """Return a client with a key."""
        return self.stack.enter_context(Client(self.address, key))

    def socket(self) -> socket.socket:
        """Connect without a client in between."""
        return self.stack.enter_context(socket.create_connection((self.host, self.port), START_S))


@contextmanager
def served_apart(postgres: Server, template: str) -> Iterator[Api]:
    """Serve an API on a database of its own: for many tests, none of which writes."""
    name = f"gnomon_test_api_{secrets.token_hex(6)}"
    url = postgres.create(name, template=template)
    try:
        with served(url) as api:
            yield api
    finally:
        postgres.drop(name)


class Client(httpx.Client):
    """What tests send, and what they get."""

    def __init__(self, address: str, key: str | None = None) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        super().__init__(base_url=address, headers=headers, timeout=60, trust_env=False)

    def add(self, text: str = "likes tea", **fields: Any) -> dict[str, Any]:
        """Add a memory."""
        answer = self.post("/v1/memories", json={"text": text, "user_id": "alice", **fields})
        assert answer.is_success, answer.text
        return dict(answer.json())

    def raw(self, method: str, path: str, body: str | bytes) -> httpx.Response:
        """Send a JSON body as it is written."""
        content = body if isinstance(body, bytes) else body.encode()
        return self.request(method, path, content=content, headers=JSON)

    def listed(self, **parameters: Any) -> dict[str, Any]:
        """List a scope."""
        answer = self.get("/v1/memories", params={"user_id": "alice", **parameters})
        assert answer.is_success, answer.text
        return dict(answer.json())

    def search(self, query: str, **fields: Any) -> dict[str, Any]:
        """Search a scope."""
        answer = self.post("/v1/search", json={"query": query, "user_id": "alice", **fields})
        assert answer.is_success, answer.text
        return dict(answer.json())

    def bulk(self, lines: bytes, mutation_id: str | None = None) -> list[dict[str, Any]]:
        """Add a memory a line; returns the answer's lines."""
        answer = self.bulk_answer(lines, mutation_id)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def bulk_answer(self, lines: Any, mutation_id: str | None = None) -> httpx.Response:
        parameters = {} if mutation_id is None else {"mutation_id": mutation_id}
        return self.post("/v1/memories:bulk", params=parameters, content=lines, headers=NDJSON)


def texts(listed: dict[str, Any]) -> list[str]:
    """Return the texts of a list's items."""
    return [item["text"] for item in listed["items"]]


@contextmanager
def served(database_url: str, **changes: Any) -> Iterator[Api]:
    """Serve an API on a database; `changes` of its services."""
    made = Api(database_url, **changes)
    with made.stack:
        yield made.start()
