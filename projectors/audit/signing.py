"""Signatures over the chain's heads: whoever has not the key can't make a whole chain anew."""

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Self

KEY_BYTES = 32


class Signer:
    """HMAC-SHA-256 under a key that does not lie in the database.

    What it proves and what not: docs/adr/0008-audit-chain.md.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.key_id = hashlib.sha256(b"gnomon audit key " + key).hexdigest()[:16]

    @classmethod
    def at(cls, path: Path) -> Self:
        """Read the key of a state folder; the first process there makes it, for its owner only."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return cls(path.read_bytes())
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        return cls(path.read_bytes())

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        return hmac.digest(self._key, message, "sha256")

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Tell whether a signature is ours."""
        return hmac.compare_digest(self.sign(message), signature)
