"""Who writes, where and when: what every command needs beside its own arguments."""

from dataclasses import dataclass

from canonical import tracing
from canonical.domain.clock import Clock
from canonical.domain.commands import Caller
from canonical.store.database import Database


@dataclass(frozen=True, slots=True)
class Writer:
    """A caller at the canonical store. `database` serves as the API role."""

    database: Database
    caller: Caller
    clock: Clock

    @property
    def tenant(self) -> str:
        """Return the tenant that everything is written for."""
        return self.caller.tenant

    def binding(self) -> dict[str, str]:
        """Return what `set_tenant` binds a transaction to: the tenant, and the trace at hand."""
        return {"tenant": self.tenant, "trace": tracing.traceparent()}
