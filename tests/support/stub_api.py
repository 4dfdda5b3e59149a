"""A scripted HTTP API for the command line's unit tests: it answers what it was told, once each."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

Answer = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


def problem(status: int, code: str, detail: str, **more: Any) -> httpx.Response:
    """Make a problem document as the API sends it."""
    said = {"type": "about:blank", "title": code, "status": status, "code": code, "detail": detail}
    headers = {"Content-Type": "application/problem+json", **more.pop("headers", {})}
    return httpx.Response(status, content=json.dumps({**said, **more}), headers=headers)


@dataclass
class StubApi:
    """Answers requests in their order, and keeps what was asked."""

    answers: list[Answer] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)

    def then(self, *answers: Answer) -> "StubApi":
        """Add answers."""
        self.answers += answers
        return self

    def says(self, document: Any, status: int = 200) -> "StubApi":
        """Add an answer with a JSON document."""
        return self.then(httpx.Response(status, json=document))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer the next request."""
        request.read()
        self.requests.append(request)
        assert self.answers, f"not expected: {request.method} {request.url}"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else answer(request)

    def body(self, number: int = -1) -> Any:
        """Return what a request carried."""
        return json.loads(self.requests[number].content)
