"""What a document of the keyword index is made of, whichever engine holds it."""

import hashlib

from projectors.keyword.analysis import ANALYSIS

# Exact terms.
MEMORY_ID = "memory_id"
TENANT = "tenant"
USER_ID = "user_id"
AGENT_ID = "agent_id"
RUN_ID = "run_id"
STATUS = "status"
FACETS = "facets"  # opaque: one per metadata key and one per value
NUMBERS = "numbers"  # opaque key and number, in the numbers' order
# Integers.
GUARD = "guard"
VALID_FROM = "valid_from"  # microseconds since 1970
VALID_TO = "valid_to"
EXPIRES_AT = "expires_at"
# Terms joined by spaces, with frequencies, without positions.
BODY = "body"

ALWAYS = -(1 << 62)  # valid_from of a record that has none
NEVER = 1 << 62  # valid_to and expires_at of a record that has none

_LAYOUT = 1  # raised when the fields above or their encodings change


def fingerprint() -> str:
    """Return what must be equal in an index and in the program that uses it."""
    return hashlib.sha256(f"keyword {_LAYOUT} {ANALYSIS}".encode()).hexdigest()[:32]
