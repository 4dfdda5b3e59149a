"""Who may see a record, when: one rule for every leg of a search, for lists, for the re-check."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from canonical.domain import filters
from canonical.domain.filters import Filter
from canonical.domain.records import Record, Status
from canonical.domain.scope import Scope


class DropReason(StrEnum):
    """Why a candidate is not shown."""

    FOREIGN = "foreign"  # outside the scope
    DELETED = "deleted"
    ERASED = "erased"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    NOT_VALID = "not_valid"  # before valid_from, or from valid_to on
    FILTERED = "filtered"  # the caller's own filter
    MISSING = "missing"  # canonical state has no such record


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """What a caller may and wants to see. Engines push it down; `drop_reason` is the last word.

    An engine may show a little more than this (the re-check drops it), never less.

    A superseded fact has ended where the newer one begins. So a look at another time than now shows
    what held then, superseded since or not; and who asks for superseded facts is shown them though
    they have ended.
    """

    scope: Scope
    now: datetime  # decides expiry
    as_of: datetime  # decides validity: valid_from <= as_of < valid_to
    where: Filter | None = None
    include_superseded: bool = False
    show_expired: bool = False

    def statuses(self) -> tuple[Status, ...]:
        """Return the statuses that may be shown."""
        if self.include_superseded or self.as_of != self.now:
            return (Status.ACTIVE, Status.SUPERSEDED)
        return (Status.ACTIVE,)


def drop_reason(record: Record, visible: Visible) -> DropReason | None:
    """Tell why `record` must not be shown, or None if it may be."""
    if not visible.scope.covers(record.scope):
        return DropReason.FOREIGN
    if record.status not in visible.statuses():
        return DropReason(record.status.value)
    if is_expired(record, visible.now) and not visible.show_expired:
        return DropReason.EXPIRED
    if not _holds(record, visible):
        return DropReason.NOT_VALID
    if visible.where is not None and not filters.matches(visible.where, record.metadata):
        return DropReason.FILTERED
    return None


def is_expired(record: Record, now: datetime) -> bool:
    """Tell whether the record's life is over: from the instant of `expires_at` on."""
    return record.expires_at is not None and record.expires_at <= now


def is_valid(record: Record, as_of: datetime) -> bool:
    """Tell whether the record's fact holds at `as_of`."""
    return _has_begun(record, as_of) and (record.valid_to is None or as_of < record.valid_to)


def _holds(record: Record, visible: Visible) -> bool:
    if visible.include_superseded and record.status is Status.SUPERSEDED:
        return _has_begun(record, visible.as_of)
    return is_valid(record, visible.as_of)


def _has_begun(record: Record, as_of: datetime) -> bool:
    return record.valid_from is None or record.valid_from <= as_of
