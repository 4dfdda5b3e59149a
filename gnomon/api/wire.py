"""Requests before they are requests: heads bounded in bytes and time, refusals as problems."""

from asyncio import TimerHandle, Transport
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from canonical.errors import GnomonError, TooLargeError
from gnomon.api import problems
from gnomon.api.refusals import MalformedBodyError, UploadTooSlowError
from gnomon.api.rendering import line

HEAD_BYTES: Final = 64 << 10
HEAD_S: float = 30.0  # from a head's first byte, or from the connection, to its end


class Wire(HttpToolsProtocol):
    """A connection; uvicorn by itself would take a head of any size, and wait for it for ever."""

    _timer: TimerHandle | None = None
    _in_head = True
    _head_bytes = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override,explicit-override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._start()

    def connection_lost(self, exc: Exception | None) -> None:  # type: ignore[explicit-override]
        """Wait for nothing more."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:  # type: ignore[explicit-override]
        """Take in what came; of a head, up to its bound."""
        if not self._in_head:
            super().data_received(data)
            return
        self._start()
        self._head_bytes += len(data)
        super().data_received(data)
        # Zero, if the head is whole by now: what came with its end may be a body of any size.
        if self._head_bytes > HEAD_BYTES:
            self._refuse(TooLargeError("head", self._head_bytes, HEAD_BYTES))

    def on_headers_complete(self) -> None:  # type: ignore[explicit-override]
        """Leave the time of the body to who reads it."""
        self._stop()
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:  # type: ignore[explicit-override]
        """Be ready for another head, which begins when something comes."""
        super().on_message_complete()
        self._in_head = True

    def send_400_response(self, msg: str) -> None:  # type: ignore[explicit-override]
        """Answer what is no HTTP."""
        self._refuse(MalformedBodyError(msg.rstrip("."), "request"))

    def _start(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_S, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._refuse(UploadTooSlowError(f"head: not whole after {HEAD_S:g} s"))

    def _refuse(self, exc: GnomonError) -> None:
        """Answer with a problem, unless another answer is under way, and close."""
        self._stop()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
            body = line(problems.document(exc))
            head = f"content-type: {problems.MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
            closing = b"connection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[exc.status] + head.encode() + closing + body)
        self.transport.close()
