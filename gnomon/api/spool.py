"""Answers that were put aside in a file while they grew, sent from there."""

import os
from collections.abc import Mapping
from typing import IO, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PIECE_BYTES: Final = 256 << 10


class SpooledResponse(Response):
    """Sends a file's content, and closes it however the sending ends."""

    def __init__(
        self, file: IO[bytes], status: int, headers: Mapping[str, str], media_type: str
    ) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)
        sized = {**headers, "Content-Length": str(self._size)}
        super().__init__(None, status, sized, media_type)

    # typing has `override` from Python 3.12 on; the arguments are Starlette's.
    async def __call__(  # type: ignore[explicit-override]
        self,
        scope: Scope,  # noqa: ARG002
        receive: Receive,  # noqa: ARG002
        send: Send,
    ) -> None:
        """Send it, a piece at a time."""
        try:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            left = self._size
            while left > 0:
                piece = await run_in_threadpool(self._file.read, PIECE_BYTES)
                left -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": left > 0})
        finally:
            self._file.close()
