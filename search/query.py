"""What a search asks, as the door has let it in."""

from collections.abc import Mapping
from dataclasses import dataclass

from canonical.domain.visibility import Visible

DEFAULT_TOP_K = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question to the memories of one scope.

    threshold: the least relevance a hit must have, in [0, 1]; 0 shows whatever is nearest.
    after:     shard -> position of a write that the answer must know of; None asks for nothing
               that is not done anyway, as every search looks at what is not projected yet.
    """

    text: str
    visible: Visible
    top_k: int = DEFAULT_TOP_K
    threshold: float = 0.0
    after: Mapping[int, int] | None = None
    explain: bool = False
