"""Every deliberate error of Gnomon, by what the operator should do.

GnomonError
 ├─ RejectedError            change the request (4xx)
 │   ├─ InvalidInputError        422  a value can't be accepted; says which, why and what is allowed
 │   ├─ TooLargeError            413  a size over its bound
 │   ├─ NotFoundError            404  no such thing in this tenant
 │   ├─ VersionConflictError     409  `expected_version` is not the current one
 │   ├─ MutationConflictError    409  the key was used before with another body
 │   ├─ StatusConflictError      409  the record's status doesn't allow the command
 │   ├─ ScopeMismatchError       422  a memory can't supersede one of another scope
 │   ├─ UnauthenticatedError     401  no valid API key
 │   └─ ForbiddenError           403  the key lacks the right
 ├─ TransientError           try again (503 with Retry-After)
 │   ├─ StoreUnavailableError        Postgres doesn't answer, or refused under contention
 │   ├─ EngineUnavailableError       an index doesn't answer: hold the page, back off
 │   ├─ ModelUnavailableError        an embedder or a recogniser doesn't answer
 │   └─ LeaseLostError               another worker holds the shard: drop the work
 ├─ PoisonError              this record is parked, the rest goes on
 │   ├─ EngineRefusedError           the engine refuses this content
 │   ├─ ModelRefusedError            the model refuses this content
 │   ├─ ProjectorFailedError         projecting this record alone fails, and nobody knows why
 │   └─ WorkersEndedError            whoever handles this record is ended by it, again and again
 └─ HaltError                an invariant broke: stop, page someone
     ├─ PositionGapError             a hole or a repeat in a shard's positions
     ├─ RecordMissingError           an event or a position names what canonical state hasn't
     ├─ EngineMismatchError          the engine holds another schema, model or history than the log
     ├─ EngineUnsupportedError       the engine's version lacks what Gnomon needs
     ├─ TooManyParkedError           more records parked than can be bad by themselves
     ├─ UnsafeStoreError             Postgres may lose a commit, or serves as superuser
     ├─ StoreNotStartedError         the embedded Postgres can't be made or started as it lies there
     ├─ StateInUseError              another process works on the state folder
     ├─ StateUnusableError           the state folder can't be made or written to, or is full
     └─ ChainBrokenError             the audit chain doesn't verify
"""

from collections.abc import Iterable
from typing import ClassVar


class GnomonError(Exception):
    """The base: a stable `code`, and a `hint` that names the next step."""

    code: ClassVar[str] = "error"
    hint: ClassVar[str] = ""
    status: ClassVar[int] = 500


class RejectedError(GnomonError):
    """The request can't be done as it is; nothing was written."""

    code = "rejected"
    hint = "Change the request."
    status = 422


class InvalidInputError(RejectedError):
    """A value can't be accepted."""

    code = "invalid_input"
    hint = "Change the named field as the message says."

    def __init__(self, field: str, problem: str, allowed: str) -> None:
        """Say which field, what was wrong with it and what is allowed."""
        super().__init__(f"{field}: {problem}; allowed: {allowed}")
        self.field, self.problem, self.allowed = field, problem, allowed


class TooLargeError(RejectedError):
    """A size is over its bound."""

    code = "too_large"
    hint = "Send less at once, or raise the bound in the server's settings."
    status = 413

    def __init__(self, field: str, size: int, limit: int, unit: str = "bytes") -> None:
        """Say what was too large, how large it was and the bound."""
        super().__init__(f"{field}: {size} {unit}; allowed: at most {limit} {unit}")
        self.field, self.size, self.limit, self.unit = field, size, limit, unit


class NotFoundError(RejectedError):
    """There is no such thing in this tenant."""

    code = "not_found"
    hint = "Check the id or the name, and the API key's tenant."
    status = 404


class VersionConflictError(RejectedError):
    """`expected_version` is not the record's current version."""

    code = "version_conflict"
    hint = "Read the record again and repeat the change on its current version."
    status = 409

    def __init__(self, expected: int, current: int) -> None:
        """Name both versions."""
        super().__init__(f"expected version {expected}, the current version is {current}")
        self.expected, self.current = expected, current


class MutationConflictError(RejectedError):
    """The mutation_id or event_id was used before with another body."""

    code = "mutation_conflict"
    hint = "Use a new id for a new command; repeat an old id only with the same body."
    status = 409


class StatusConflictError(RejectedError):
    """The record's status doesn't allow the command."""

    code = "status_conflict"
    hint = "Read the record: only an active record can be changed."
    status = 409


class ScopeMismatchError(RejectedError):
    """A memory can't take the place of one of another scope."""

    code = "scope_mismatch"
    hint = (
        "Give the new memory the user_id, agent_id and run_id of the older one; to move a fact to"
        " another scope, add it there and delete it here."
    )

    def __init__(self, differing: Iterable[str]) -> None:
        """Name the ids that differ; whose they are is not said."""
        self.fields = tuple(differing)
        super().__init__(
            "the new memory's scope is not that of the one which it would supersede: "
            f"{', '.join(self.fields)}"
        )


class UnauthenticatedError(RejectedError):
    """There is no valid API key."""

    code = "unauthenticated"
    hint = (
        "Send `Authorization: Bearer KEY` (for `gnomon`: set GNOMON_KEY); make a key with"
        " `gnomon keys create`."
    )
    status = 401


class ForbiddenError(RejectedError):
    """The API key lacks the right, or the request comes from where it may not."""

    code = "forbidden"
    hint = "Use a key with the right that the message names."
    status = 403


class TransientError(GnomonError):
    """It may go through when it is tried again."""

    code = "transient"
    hint = "Try again later."
    status = 503


class StoreUnavailableError(TransientError):
    """Postgres doesn't answer, or refused under contention."""

    code = "store_unavailable"
    hint = "Try again; a repeated mutation_id has no second effect."


class EngineUnavailableError(TransientError):
    """An index doesn't answer: the page is held and tried again."""

    code = "engine_unavailable"
    hint = "Bring the engine back; its shards go on by themselves."


class ModelUnavailableError(TransientError):
    """An embedder or a recogniser doesn't answer."""

    code = "model_unavailable"
    hint = "Bring the model's endpoint back; the shards that wait for it go on by themselves."


class LeaseLostError(TransientError):
    """Another worker holds the shard: the work at hand is dropped, nothing is lost."""

    code = "lease_lost"
    hint = "Nothing to do; the holder goes on."

    def __init__(self, message: str, shards: frozenset[int] = frozenset()) -> None:
        """Name the shards, as far as it is known which of those at hand were lost."""
        super().__init__(message)
        self.shards = shards


class PoisonError(GnomonError):
    """This content can't be projected: the record is parked by itself."""

    code = "poison"
    hint = "See `gnomon park list`; mend the record or the engine, then `gnomon park redrive`."


class EngineRefusedError(PoisonError):
    """The engine refuses this content."""

    code = "engine_refused"


class ModelRefusedError(PoisonError):
    """The model refuses this content."""

    code = "model_refused"


class ProjectorFailedError(PoisonError):
    """Projecting this record alone fails in a way that nobody foresaw, while others go through."""

    code = "projector_failed"
    hint = (
        "A fault of ours: report the message. `gnomon park list` shows the record, and"
        " `gnomon park redrive` tries it again."
    )


class WorkersEndedError(PoisonError):
    """Every process that handled this record ended before it was done with it."""

    code = "workers_ended"
    hint = (
        "Look at how they ended (the system's log, memory, exit codes), mend it or change the"
        " record, then `gnomon park redrive`."
    )


class HaltError(GnomonError):
    """An invariant broke: the shard or the process stops, and someone is paged."""

    code = "halt"
    hint = "Stop and look: nothing was skipped; the message names the place."


class PositionGapError(HaltError):
    """A shard's positions have a hole or a repeat."""

    code = "position_gap"
    hint = "Someone wrote to the log by hand, or it was damaged: restore it, then resume."

    def __init__(self, shard: int, expected: int, found: int | None) -> None:
        """Name the shard and the place."""
        super().__init__(f"shard {shard}: position {expected} expected, found {found}")
        self.shard, self.expected, self.found = shard, expected, found


class RecordMissingError(HaltError):
    """The log names a record or a version that canonical state doesn't hold."""

    code = "record_missing"
    hint = "Rows were removed by hand, or the database was damaged: restore it, then resume."


class EngineMismatchError(HaltError):
    """The engine holds another schema, model or history than the log."""

    code = "engine_mismatch"
    hint = (
        "Start `gnomon up` again: an index that is gone or damaged is built anew by itself; else"
        " ask for it with --rebuild."
    )


class EngineUnsupportedError(HaltError):
    """The engine's version or flavour lacks what Gnomon needs; what it holds may be sound."""

    code = "engine_unsupported"
    hint = "Upgrade the engine to the version that the message names, then start again."


class TooManyParkedError(HaltError):
    """More records are parked than can be bad by themselves."""

    code = "too_many_parked"
    hint = "Look at the common error in `gnomon park list`, mend its cause, redrive, resume."


class UnsafeStoreError(HaltError):
    """Postgres may lose a commit as it is set, or the role it serves is too strong."""

    code = "unsafe_store"
    hint = "Set what the message names, then start again."


class StoreNotStartedError(HaltError):
    """The embedded Postgres can't be made or started as it lies there."""

    code = "store_not_started"
    hint = (
        "Mend what the message names (rights, space, the installation; a damaged data folder comes"
        " from a backup), then start again: nothing that is stored was changed."
    )


class StateInUseError(HaltError):
    """Another process works on the state folder."""

    code = "state_in_use"
    hint = "Use the server that runs, or stop it first, or start on another folder with --state."

    def __init__(self, folder: str, holder: str) -> None:
        """Name the folder and the process that holds it, as far as it is known."""
        super().__init__(f"{folder} is in use by {f'process {holder}' if holder else 'a process'}")
        self.folder, self.holder = folder, holder


class StateUnusableError(HaltError):
    """The state folder can't be made, or not be written to, or has no space left."""

    code = "state_unusable"
    hint = (
        "Name a folder that this user may write to, with --state or GNOMON_STATE; if its disk is"
        " full, make space."
    )


class ChainBrokenError(HaltError):
    """The audit chain doesn't verify."""

    code = "chain_broken"
    hint = "Keep the database as it is and compare with the exported heads."


def hint_of(code: str | None) -> str | None:
    """Return what the error of a code, as it was kept, says to do next; None of an unknown one."""
    kinds = [GnomonError]
    for kind in kinds:
        if kind.code == code:
            return kind.hint
        kinds += kind.__subclasses__()
    return None
