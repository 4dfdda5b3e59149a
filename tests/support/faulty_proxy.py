"""An HTTP proxy between a client and an engine, which breaks what tests tell it to break.

It forwards each request whole, notes it, and gives the answer back: unless a fault that fits the
request waits. Faults are used up in their order; a fault may wait for a kind of request.
"""

import http.client
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import override

WAIT_S = 20
HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """What goes back to the client."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Fault:
    """What happens instead of: forward it, give the answer back."""

    def __call__(self, exchange: "Exchange") -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Instead(Fault):
    """The engine never sees it; the client gets this."""

    answer: Answer

    @override
    def __call__(self, exchange: "Exchange") -> None:
        exchange.reply(self.answer)


class Reset(Fault):
    """The engine never sees it; the connection is reset."""

    @override
    def __call__(self, exchange: "Exchange") -> None:
        exchange.reset()


class LostReply(Fault):
    """The engine has done it, and the connection is reset before the client hears of it."""

    @override
    def __call__(self, exchange: "Exchange") -> None:
        exchange.forward()
        exchange.reset()


@dataclass(frozen=True)
class Rewritten(Fault):
    """The engine has done it, and the client hears something else."""

    change: Callable[[Answer], Answer]

    @override
    def __call__(self, exchange: "Exchange") -> None:
        exchange.reply(self.change(exchange.forward()))


@dataclass(frozen=True)
class Silence(Fault):
    """The engine has done it, or not even heard of it; nothing comes back until `until` is set."""

    until: Event
    forward: bool = True

    @override
    def __call__(self, exchange: "Exchange") -> None:
        if self.forward:
            exchange.forward()
        self.until.wait(WAIT_S)
        exchange.reset()


@dataclass(frozen=True)
class Drip(Fault):
    """The answer comes a byte at a time."""

    pause_s: float

    @override
    def __call__(self, exchange: "Exchange") -> None:
        exchange.drip(exchange.forward(), self.pause_s)


@dataclass(frozen=True)
class Then(Fault):
    """Something happens elsewhere first (the engine is killed, say); then it goes on as usual."""

    happens: Callable[[], object]
    after: bool = False  # once the engine has answered

    @override
    def __call__(self, exchange: "Exchange") -> None:
        if not self.after:
            self.happens()
            exchange.reply(exchange.forward())
            return
        answer = exchange.forward()
        self.happens()
        exchange.reply(answer)


@dataclass
class Planned:
    """A fault that waits for its requests."""

    fault: Fault
    method: str
    path: str
    left: int


class Exchange:
    """A request on its way."""

    def __init__(self, proxy: "FaultyProxy", handler: "Handler", request: Request) -> None:
        self._proxy, self._handler, self.request = proxy, handler, request

    def forward(self) -> Answer:
        """Let the engine do it."""
        host, port = self._proxy.engine
        connection = http.client.HTTPConnection(host, port, timeout=WAIT_S)
        try:
            headers = {k: v for k, v in self.request.headers.items() if k.lower() not in HOP}
            connection.request(self.request.method, self.request.path, self.request.body, headers)
            got = connection.getresponse()
            kept = {k: v for k, v in got.getheaders() if k.lower() not in HOP}
            return Answer(got.status, got.read(), kept)
        finally:
            connection.close()

    def reply(self, answer: Answer) -> None:
        """Give an answer to the client."""
        self._handler.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()
        if self.request.method != "HEAD":
            self._handler.wfile.write(answer.body)

    def drip(self, answer: Answer, pause_s: float) -> None:
        """Give an answer a byte at a time, until the client has had enough."""
        self._handler.send_response(answer.status)
        self._handler.send_header("Content-Length", str(len(answer.body)))
        self._handler.end_headers()
        for byte in answer.body:
            time.sleep(pause_s)
            self._handler.wfile.write(bytes([byte]))

    def reset(self) -> None:
        """Break the connection off, as the system does for a process that is gone."""
        linger = struct.pack("ii", 1, 0)
        self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._handler.close_connection = True


class Handler(BaseHTTPRequestHandler):
    """One client connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @override
    def parse_request(self) -> bool:
        for method in ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"):
            setattr(self, f"do_{method}", self._pass)
        return super().parse_request()

    def _pass(self) -> None:
        server = self.server
        assert isinstance(server, Listener)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, self.path, body, dict(self.headers.items()))
        exchange = Exchange(server.proxy, self, request)
        fault = server.proxy.take(request)
        try:
            if fault is None:
                exchange.reply(exchange.forward())
            else:
                fault(exchange)
        except (OSError, http.client.HTTPException):  # the engine or the client is gone
            exchange.reset()

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


class Listener(ThreadingHTTPServer):
    """The proxy's socket."""

    daemon_threads = True

    def __init__(self, proxy: "FaultyProxy", port: int) -> None:
        self.proxy = proxy
        self.connections = set[socket.socket]()
        super().__init__(("127.0.0.1", port), Handler)

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    @override
    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        """Break off the connections that clients hold open."""
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that hung up


class FaultyProxy:
    """Listens on a loopback port of its own, in front of the engine at `engine_url`."""

    def __init__(self, engine_url: str) -> None:
        found = urlsplit(engine_url)
        assert found.hostname is not None
        self.engine = (found.hostname, found.port or 80)
        self.seen: list[Request] = []
        self._plan: list[Planned] = []
        self._lock = Lock()
        self._port = 0
        self.up()

    @property
    def url(self) -> str:
        """Return where clients find it."""
        return f"http://127.0.0.1:{self._port}"

    def plan(self, fault: Fault, method: str = "", path: str = "", *, times: int = 1) -> None:
        """Break the next requests of this method whose path holds this."""
        with self._lock:
            self._plan.append(Planned(fault, method, path, times))

    def take(self, request: Request) -> Fault | None:
        """Note a request, and return the fault that waits for it."""
        with self._lock:
            self.seen.append(request)
            for planned in self._plan:
                fits = planned.method in ("", request.method) and planned.path in request.path
                if fits and planned.left > 0:
                    planned.left -= 1
                    return planned.fault
        return None

    def heal(self) -> None:
        """Forget the faults that still wait."""
        with self._lock:
            self._plan.clear()

    def unused(self) -> int:
        """Count the faults that no request has met."""
        with self._lock:
            return sum(planned.left for planned in self._plan)

    def sent(self, method: str, path: str) -> list[Request]:
        """List the requests of a method whose path holds this."""
        with self._lock:
            return [r for r in self.seen if r.method == method and path in r.path]

    def up(self) -> None:
        """Listen, on the same port as before."""
        self._listener = Listener(self, self._port)
        self._port = self._listener.server_port
        self._thread = Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def down(self) -> None:
        """Break off what is open, and refuse connections."""
        self._listener.shutdown()
        self._listener.cut()
        self._listener.server_close()
        self._thread.join(WAIT_S)


@contextmanager
def proxied(engine_url: str) -> Iterator[FaultyProxy]:
    """Put a proxy in front of an engine."""
    proxy = FaultyProxy(engine_url)
    try:
        yield proxy
    finally:
        proxy.down()
