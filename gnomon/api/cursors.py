"""Cursors of lists: where the next page begins, bound to the question that they belong to."""

import base64
import binascii
import hashlib
import json
from typing import Final
from uuid import UUID

from canonical.errors import InvalidInputError

ID_BYTES: Final = 16
DIGEST_BYTES: Final = 12


def write(last: UUID, question: object) -> str:
    """Write where a page ended."""
    return base64.urlsafe_b64encode(last.bytes + _digest(question)).decode()


def read(cursor: str, question: object) -> UUID:
    """Read where the page before ended.

    Guarantee: a cursor decides only where a page begins, never what may be seen: a forged one
               widens nothing.
    Raises:    InvalidInputError, for a garbled cursor and for that of another question.
    """
    allowed = "the next_cursor of the page before, with that page's parameters"
    try:
        raw = base64.b64decode(cursor.encode("ascii"), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInputError("cursor", "is not one of ours", allowed) from None
    if len(raw) != ID_BYTES + DIGEST_BYTES:
        raise InvalidInputError("cursor", "is not one of ours", allowed)
    if raw[ID_BYTES:] != _digest(question):
        raise InvalidInputError("cursor", "is of another question", allowed)
    return UUID(bytes=raw[:ID_BYTES])


def _digest(question: object) -> bytes:
    raw = json.dumps(question, sort_keys=True).encode()
    return hashlib.blake2b(raw, digest_size=DIGEST_BYTES).digest()
