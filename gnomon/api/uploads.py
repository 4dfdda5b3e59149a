"""Request bodies off the wire: their media type, their bound, and pauses that last too long."""

import asyncio
from concurrent.futures import CancelledError
from datetime import timedelta
from enum import Enum
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Receive

from canonical.errors import TooLargeError
from gnomon.api.refusals import (
    MalformedBodyError,
    UnsupportedMediaTypeError,
    UploadBrokenError,
    UploadTooSlowError,
)


class Body(Enum):
    """What a route takes as its body: the media types, none of which a web form can send."""

    JSON = ("application/json",)
    LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl")


STOPPING_S: Final = 5.0  # a loop that hasn't answered by then is gone
UTF_8: Final = frozenset({"utf-8", "utf8", '"utf-8"', '"utf8"'})


def check_media_type(headers: Headers, body: Body) -> None:
    """Refuse a body that isn't what the route takes.

    Raises: UnsupportedMediaTypeError.
    """
    allowed = f"{body.value[0]} in UTF-8"
    sent = headers.get("content-type", "")
    kind, *parameters = (part.strip().lower() for part in sent.split(";"))
    if kind not in body.value:
        raise UnsupportedMediaTypeError(sent, allowed)
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip() not in UTF_8:
            raise UnsupportedMediaTypeError(sent, allowed)
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise UnsupportedMediaTypeError(f"{kind} as {coding}", f"{allowed}, not compressed")


async def read_whole(headers: Headers, receive: Receive, limit: int, idle: timedelta) -> bytes:
    """Read a body of at most `limit` bytes.

    Raises: TooLargeError, before the rest is read; MalformedBodyError, when there is none;
            UploadTooSlowError; UploadBrokenError.
    """
    announced = headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise TooLargeError("body", int(announced), limit)
    pieces: list[bytes] = []
    size = 0
    more = True
    while more:
        piece, more = await _next(receive, idle)
        size += len(piece)
        if size > limit:
            raise TooLargeError("body", size, limit)
        pieces.append(piece)
    if not size:
        raise MalformedBodyError("is empty")
    return b"".join(pieces)


async def _next(receive: Receive, idle: timedelta) -> tuple[bytes, bool]:
    try:
        async with asyncio.timeout(idle.total_seconds()):
            message = await receive()
    except TimeoutError:
        raise UploadTooSlowError(f"body: nothing came for {idle.total_seconds():g} s") from None
    if message["type"] != "http.request":
        raise UploadBrokenError("the connection broke before the end of the body")
    return message.get("body", b""), message.get("more_body", False)


class Upload:
    """A body that a thread reads piece by piece, so that its size needs no bound."""

    def __init__(self, receive: Receive, idle: timedelta) -> None:
        """Take over a request's body; to be made on the event loop."""
        self._receive, self._idle = receive, idle
        self._loop = asyncio.get_running_loop()
        self._more = True

    def read(self) -> bytes:
        """Return the next piece; empty: there is no more.

        Raises: UploadTooSlowError; UploadBrokenError.
        """
        while self._more:
            piece, self._more = self._wait()
            if piece:
                return piece
        return b""

    def _wait(self) -> tuple[bytes, bool]:
        coming = _next(self._receive, self._idle)
        try:
            waiting = asyncio.run_coroutine_threadsafe(coming, self._loop)
        except RuntimeError:  # the loop is closed
            coming.close()
            raise UploadBrokenError("the server has stopped") from None
        try:
            return waiting.result(self._idle.total_seconds() + STOPPING_S)
        except (CancelledError, TimeoutError):
            raise UploadBrokenError("the server stops") from None

    def drain(self) -> None:
        """Read what is left and forget it: a client that still sends can't read an answer."""
        while self.read():
            pass
