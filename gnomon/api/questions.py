"""What lists and searches have in common: a scope, a filter, and what they want to see of it."""

from collections.abc import Mapping
from typing import Any, Final

from canonical.domain import door, filters
from canonical.domain.commands import SCOPE_FIELDS
from canonical.domain.visibility import Visible
from gnomon.api import parameters
from gnomon.api.gate import Call

FLAGS: Final = frozenset({"show_expired", "include_superseded"})
VISIBLE_FIELDS: Final = SCOPE_FIELDS | FLAGS | {"filter", "as_of"}


def visible(call: Call, given: Mapping[str, Any]) -> Visible:
    """Read what a caller may and wants to see; `given` is JSON.

    Guarantee: the tenant is the key's, and nothing in `given` can name another.
    Raises:    InvalidInputError.
    """
    now = call.services.clock.now()
    return Visible(
        scope=door.scope(given, call.tenant, call.services.limits),
        now=now,
        as_of=door.instant(given.get("as_of"), "as_of") or now,
        where=filters.parse(given.get("filter")),
        **{name: parameters.boolean(given.get(name), name) for name in FLAGS},
    )
