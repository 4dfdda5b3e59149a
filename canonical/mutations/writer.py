"""Who writes, where and when: what every command needs beside its own arguments."""

from dataclasses import dataclass

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
