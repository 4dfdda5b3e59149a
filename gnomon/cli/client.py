"""The HTTP API as the command line calls it: typed answers, and errors that say what to do."""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

import httpx

from gnomon.cli import failures
from gnomon.cli.answers import Found, History, Listed, Memory, ScopeDelete, Write
from gnomon.cli.failures import CommandError, Exit

CONNECT_S: Final = 5.0
ANSWER_S: Final = 120.0  # a bulk answers once its last line is written
BACKOFFS_S: Final = (0.5, 1.0, 2.0)  # before each further try; a server's Retry-After goes before
LONGEST_WAIT_S: Final = 10.0
BUSY: Final = frozenset({429, 503})
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"


class Client:
    """One server. Writes carry a mutation id, so that a repeat after a lost answer is harmless.

    Raises: CommandError from every method: the server's refusal, or that no server answers.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare; nothing is connected yet."""
        self.url = url.rstrip("/")
        self._sleep = sleep
        address = _address(self.url)
        self._http = httpx.Client(
            base_url=address,
            headers={} if key is None else {"Authorization": f"Bearer {_header(key)}"},
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            # A proxy of the environment has no road to this machine's own loopback.
            trust_env=address.host not in LOOPBACK,
            verify=address.scheme == "https",  # certificates take 50 ms to load
            transport=transport,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def add(self, memory: Mapping[str, Any]) -> Write:
        """Add one memory."""
        return cast("Write", self._command("POST", "/v1/memories", memory))

    def get(self, memory_id: str, *, include_deleted: bool = False) -> Memory:
        """Read one memory."""
        params = {"include_deleted": "true"} if include_deleted else {}
        return cast("Memory", self._json("GET", _memory(memory_id), params=params))

    def history(self, memory_id: str) -> History:
        """Read every version of a memory."""
        return cast("History", self._json("GET", _memory(memory_id) + "/history"))

    def update(self, memory_id: str, changes: Mapping[str, Any]) -> Write:
        """Change one memory."""
        return cast("Write", self._command("PATCH", _memory(memory_id), changes))

    def delete(self, memory_id: str, options: Mapping[str, str]) -> Write:
        """Delete one memory; `options`: expected_version, mutation_id, why."""
        params = {"mutation_id": _new_mutation_id(), **options}
        return cast("Write", self._json("DELETE", _memory(memory_id), params=params))

    def delete_scope(self, scope: Mapping[str, str], options: Mapping[str, str]) -> ScopeDelete:
        """Delete all memories of a scope; `options`: mutation_id, why.

        Called again, it deletes what came since; a repeat after a lost answer doesn't.
        """
        params = {"mutation_id": _new_mutation_id(), **scope, **options}
        return cast("ScopeDelete", self._json("DELETE", "/v1/memories", params=params))

    def list_page(self, parameters: Mapping[str, str]) -> Listed:
        """Read a page of a scope's memories."""
        return cast("Listed", self._json("GET", "/v1/memories", params=parameters))

    def search(self, question: Mapping[str, Any]) -> Found:
        """Search a scope's memories."""
        return cast("Found", self._json("POST", "/v1/search", body=question))

    def bulk(self, lines: bytes, mutation_id: str) -> list[dict[str, Any]]:
        """Add a memory a line; return the answer's lines, the summary last.

        Guarantee: when it returns, every line was handled: committed, or refused by itself.
        """
        url = _url("/v1/memories:bulk", {"mutation_id": mutation_id})
        answer = self._send("POST", url, lines, {"Content-Type": NDJSON})
        said = [_parsed(line, self.url) for line in answer.text.splitlines() if line]
        if not said or "summary" not in said[-1]:
            raise _lost(self.url, "the answer ends in the middle")
        return said

    def projections(self) -> Listed:
        """Read how far each projection has come."""
        return cast("Listed", self._json("GET", "/v1/projections"))

    def steer(self, projection: str, verb: str) -> dict[str, Any]:
        """Pause or resume a projection."""
        path = f"/v1/projections/{_segment(projection)}:{verb}"
        return cast("dict[str, Any]", self._json("POST", path))

    def parked(self, projection: str, parameters: Mapping[str, str]) -> Listed:
        """Read a page of the memories that a projection has parked."""
        path = f"/v1/projections/{_segment(projection)}/parked"
        return cast("Listed", self._json("GET", path, params=parameters))

    def redrive(self, projection: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Let parked memories be tried again at once."""
        path = f"/v1/projections/{_segment(projection)}/parked:redrive"
        return cast("dict[str, Any]", self._json("POST", path, body=body))

    def _command(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        return self._json(method, path, body={"mutation_id": _new_mutation_id(), **body})

    def _json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        # In ASCII a lone surrogate travels as it is, and the server says which field has it.
        content = None if body is None else json.dumps(body).encode("ascii")
        headers = {} if body is None else {"Content-Type": JSON}
        answer = self._send(method, _url(path, params or {}), content, headers)
        return _parsed(answer.text, self.url)

    def _send(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]
    ) -> httpx.Response:
        """Send a request, again if the server is busy or its answer is lost: each is repeatable."""
        for wait_s in (*BACKOFFS_S, None):
            try:
                answer = self._http.request(method, url, content=content, headers=headers)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as exc:
                raise failures.unreachable(self.url, exc) from None
            except httpx.TransportError as exc:
                if wait_s is None or isinstance(exc, httpx.TimeoutException):
                    raise _lost(self.url, exc) from None
            else:
                if answer.is_success:
                    return answer
                if wait_s is None or answer.status_code not in BUSY:
                    raise _problem(answer, self.url)
                self._sleep(_retry_after(answer, wait_s))
                continue
            self._sleep(wait_s)
        raise AssertionError


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as exc:
        raise _bad("url", f"{url!r} ({exc})", "an address like http://127.0.0.1:7377") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise _bad("url", repr(url), "an address like http://127.0.0.1:7377")
    return address


def _header(key: str) -> str:
    if not key.isascii() or not key.isprintable():
        raise _bad("key", "has characters that no key has", "what `gnomon keys create` printed")
    return key


def _bad(what: str, problem: str, allowed: str) -> CommandError:
    return CommandError(f"bad_{what}", f"{what}: {problem}", f"Give {allowed}.", Exit.USAGE)


def _new_mutation_id() -> str:
    return f"cli-{uuid.uuid4()}"


def _memory(memory_id: str) -> str:
    return f"/v1/memories/{_segment(memory_id)}"


def _segment(name: str) -> str:
    """Write a name as one segment of a path; none that would make it another path."""
    if not name.strip("."):
        raise CommandError(
            "invalid_input",
            f"{name!r} is no id",
            "Give the id that the write answered.",
            Exit.REFUSED,
        )
    return quote(name, safe="", errors="surrogatepass")


def _url(path: str, params: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(params, errors='surrogatepass')}" if params else path


def _parsed(text: str, url: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise _stranger(url, text) from None


def _retry_after(answer: httpx.Response, otherwise_s: float) -> float:
    asked = answer.headers.get("Retry-After", "")
    return min(float(asked), LONGEST_WAIT_S) if asked.isdecimal() else otherwise_s


def _problem(answer: httpx.Response, url: str) -> CommandError:
    """Translate a problem document, or the end of a bulk that ended early."""
    try:
        if answer.headers.get("Content-Type", "").startswith(NDJSON):
            said = json.loads(answer.text.splitlines()[-1])["summary"]["error"]
        else:
            said = answer.json()
        code, message = said["code"], said.get("detail") or said["message"]
    except (ValueError, LookupError, TypeError):
        return _stranger(url, f"status {answer.status_code}: {answer.text}")
    return CommandError(
        code, message, said.get("hint", ""), exit_for(answer.status_code), said.get("field")
    )


def exit_for(status: int) -> Exit:
    """Return the exit code for an HTTP status that is no success."""
    if status in BUSY:
        return Exit.TRANSIENT
    return Exit.REFUSED if status < httpx.codes.INTERNAL_SERVER_ERROR else Exit.HALT


def _lost(url: str, why: object) -> CommandError:
    return CommandError(
        "answer_lost",
        f"the connection to {url} broke before the answer was there ({why})",
        "Whether it was done is not known. An import may be run again as it is; for another "
        "command, look first.",
        Exit.TRANSIENT,
    )


def _stranger(url: str, said: str) -> CommandError:
    return CommandError(
        "unexpected_answer",
        f"what answers at {url} doesn't answer like Gnomon: {said[:200]!r}",
        "Is another program, or a proxy, at this address? Name the server with --url.",
        Exit.UNREACHABLE,
    )
