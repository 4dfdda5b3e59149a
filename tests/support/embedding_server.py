"""An HTTP server that speaks OpenAI's /embeddings, with moods, for tests of what talks to one."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import numpy as np
from typing_extensions import override

from inference.fakes import HashEmbedder

Reply = tuple[int, object]


@dataclass
class EmbeddingServer:
    """What the server does next and what it was asked. `mood` may answer instead of the model."""

    dimension: int = 64
    requests: list[list[str]] = field(default_factory=list)
    mood: Callable[[list[str]], Reply | None] = lambda _texts: None
    release: Event = field(default_factory=Event)  # `stall` waits for it
    address: str = ""

    def answer(self, texts: list[str]) -> Reply:
        self.requests.append(texts)
        if (reply := self.mood(texts)) is not None:
            return reply
        return 200, self.vectors(texts)

    def vectors(self, texts: list[str], scale: float = 3.0) -> dict[str, Any]:
        """Make an answer; not of length 1 and not in order, as the specification allows."""
        found = HashEmbedder(self.dimension).embed(texts)
        rows = [
            {"object": "embedding", "index": n, "embedding": (np.asarray(v) * scale).tolist()}
            for n, v in enumerate(found)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "data": rows[::-1], "model": "test", "usage": usage}

    def stall(self, _texts: list[str]) -> Reply:
        self.release.wait(timeout=30)
        return 500, {"error": {"message": "too late"}}


def error(status: int, message: str = "no") -> Reply:
    return status, {"error": {"message": message, "type": "test"}}


@contextmanager
def running() -> Iterator[EmbeddingServer]:
    state = EmbeddingServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: two cost 40 ms a request

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, reply = state.answer(body["input"])
            raw = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)
                self.wfile.flush()
            except ConnectionError:
                self.close_connection = True  # the client gave up

        @override
        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    state.address = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield state
    finally:
        state.release.set()
        server.shutdown()
        thread.join()
        server.server_close()
