"""What a point of the vector index is made of, whichever engine holds it."""

import hashlib
from dataclasses import dataclass
from typing import Final

# A point's id is its memory's. There is no text in the index, and no metadata in the clear.
TENANT: Final = "tenant"
USER_ID: Final = "user_id"
AGENT_ID: Final = "agent_id"
RUN_ID: Final = "run_id"
STATUS: Final = "status"
TERMS: Final = "terms"  # opaque: one per metadata key and one per value
KEYWORDS: Final = (TENANT, USER_ID, AGENT_ID, RUN_ID, STATUS, TERMS)

VALID_FROM: Final = "valid_from"  # microseconds since 1970, if the record has one; so the next two
VALID_TO: Final = "valid_to"
EXPIRES_AT: Final = "expires_at"
MOMENTS: Final = (VALID_FROM, VALID_TO, EXPIRES_AT)

GUARD: Final = "guard"  # epoch and rev: not indexed, it is asked of known points only
# A list of {key, high, low}: the key is opaque, the rest is a double as `mapping.in_order` cuts it.
NUMBERS: Final = "numbers"
NUMBER_KEY: Final = "key"
NUMBER_HIGH: Final = "high"
NUMBER_LOW: Final = "low"

# How far one shard of the log has come: a point per shard, whose id is the shard's number and
# which has no other field, so that no search and no count of memories can meet it.
MARK: Final = "mark"

# Engines compare numbers as doubles, which hold every integer up to here.
MAX_EXACT: Final = 1 << 53

_LAYOUT: Final = 1  # raised when the fields above or what they hold change


@dataclass(frozen=True, slots=True)
class Shape:
    """What must be equal in an index and in the program that uses it."""

    model: str
    dimension: int

    def fingerprint(self) -> str:
        """Return one value for the shape and the layout of the fields."""
        raw = f"vector {_LAYOUT} {self.dimension} {self.model}".encode()
        return hashlib.sha256(raw).hexdigest()[:32]
